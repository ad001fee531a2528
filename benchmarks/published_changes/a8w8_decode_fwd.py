"""Calls `decode_fwd` of models/qwen3/14b/decode_layer_a8w8.py, which has no main of its own (row pl760).

Run from the folder of that file. 40 layers, a batch of 16 and a `max-seq` of 512, as the row states. The lengths of the
requests are those of the file's own test of one layer, 1 to 16 tokens: the row says nothing of them.
"""

from __future__ import annotations

import os
import sys

os.environ["PTO2_MANUAL_MAX_SEQ"] = "512"
sys.path.insert(0, os.getcwd())

import torch
from config import QWEN3_14B as M
from decode_layer_a8w8 import (
    BATCH,
    BLOCK_SIZE,
    HEAD_DIM,
    HIDDEN,
    INTERMEDIATE,
    KV_HIDDEN,
    MAX_SEQ,
    NUM_LAYERS,
    decode_fwd,
)

PAGES = MAX_SEQ // BLOCK_SIZE
ROWS = NUM_LAYERS * BATCH * PAGES * M.num_kv_heads * BLOCK_SIZE  # of the cache, all layers
LENGTHS = torch.arange(1, BATCH + 1, dtype=torch.int32)


def weights(columns: int, rows: int = HIDDEN, dtype: torch.dtype = torch.int8) -> torch.Tensor:
    return torch.zeros([NUM_LAYERS * rows, columns], dtype=dtype)


def scales(columns: int) -> torch.Tensor:
    return torch.zeros([NUM_LAYERS, columns])


decode_fwd(
    torch.zeros([BATCH, HIDDEN], dtype=torch.bfloat16),
    scales(HIDDEN),
    weights(HIDDEN),
    weights(KV_HIDDEN),
    weights(KV_HIDDEN),
    scales(HIDDEN),
    scales(KV_HIDDEN),
    scales(KV_HIDDEN),
    scales(HEAD_DIM),
    scales(HEAD_DIM),
    LENGTHS,
    torch.arange(BATCH * PAGES, dtype=torch.int32),
    torch.arange(BATCH, dtype=torch.int32) * MAX_SEQ + LENGTHS - 1,
    torch.zeros([MAX_SEQ, HEAD_DIM]),
    torch.zeros([MAX_SEQ, HEAD_DIM]),
    *(torch.zeros([ROWS, HEAD_DIM], dtype=torch.int8) for _ in range(2)),
    *(torch.zeros([ROWS, 1]) for _ in range(2)),
    weights(HIDDEN),
    scales(HIDDEN),
    weights(INTERMEDIATE, dtype=torch.bfloat16),
    weights(INTERMEDIATE, dtype=torch.bfloat16),
    weights(HIDDEN, INTERMEDIATE, torch.bfloat16),
    scales(HIDDEN),
    torch.zeros([1, HIDDEN]),
    torch.zeros([M.vocab, HIDDEN], dtype=torch.bfloat16),
    torch.zeros([BATCH, M.vocab]),
)
