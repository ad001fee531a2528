"""What a decode step is told about its rows: sequence lengths, where their KV pages lie, the rotary tables.

A row of length 0 takes no part (the padding of a batch, a sequence that has not begun). Pages are scattered over the
pool by a seeded permutation, so a program that reads the wrong page gives wrong numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from qwen3_14b.config import PAGE, Qwen3

Array = npt.NDArray[Any]


def block_table(model: Qwen3, seed: int = 0) -> Array:
    """[rows * pages of a sequence]: the physical page of each logical one."""
    return np.random.default_rng(seed).permutation(model.pages).astype(np.int32)


def slot_mapping(model: Qwen3, table: Array, seq_lens: Array) -> Array:
    """[rows]: the slot (page * 128 + offset) of each row's newest token; 0 for a row that takes no part."""
    position = np.maximum(seq_lens - 1, 0)
    page = table.reshape(model.rows, model.seq_pages)[np.arange(model.rows), position // PAGE]
    return np.where(seq_lens > 0, page * PAGE + position % PAGE, 0).astype(np.int32)


def lengths_of(model: Qwen3, seed: int = 0) -> Array:
    """[rows]: the model's context; else the longest a sequence can be, one that ends a page, one that begins one, and
    others between.
    """
    if model.context is not None:
        lengths = np.full(model.rows, model.context)
    else:
        lengths = np.random.default_rng(seed).integers(1, model.max_seq + 1, model.rows)
        lengths[:4] = np.minimum([model.max_seq, PAGE, PAGE + 1, 1], model.max_seq)
    lengths[model.batch :] = 0
    return lengths.astype(np.int32)


def rope_tables(model: Qwen3) -> tuple[Array, Array]:
    """cos and sin, [max_seq, head_dim] in fp32; both halves hold the same angles."""
    half = np.arange(0, model.head_dim, 2, dtype=np.float32) / np.float32(model.head_dim)
    frequency = (np.float32(1.0) / np.float32(model.theta) ** half).astype(np.float32)
    angles = np.arange(model.max_seq, dtype=np.float32)[:, None] * frequency[None, :]
    angles = np.concatenate([angles, angles], axis=1)
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
