"""Paged attention of one decode step, standalone: four kernels per (row, query tile, KV block), each a task of its own.

    qk_matmul        S = Q · Kᵀ                        cube     q [16,128], k [128,128] → s [16,128] fp32
    softmax_prepare  P = exp(S·scale - m), m, l        vector   s → p bf16, row maximum m, row sum l
    pv_matmul        O' = P · V                        cube     p [16,128], v [128,128] → o' [16,128] fp32
    online_update    rescale the running m, l, o       vector   one after the other along a row's blocks

Everything goes through global memory between the kernels, and QK → softmax → PV → update ping-pongs between cube and
vector cores: this is the program whose bubbles show what attention itself costs. `paged_attention_highperf.py` is the
fast one.

The context of each row lies in pages of 128 tokens anywhere in the cache; the block table names them in order. Rows
have different lengths; the last page is partly filled and the softmax masks the rest. All query heads of a row share
one KV head; they come in tiles of 16, the last tile filled up with zero heads (40 heads make 3 tiles).

    python models/paged_attention.py                                          4 rows, 16 heads, up to 600 tokens
    python models/paged_attention.py --batch 16 --heads 40 --context 4096 --even      6,144 tasks and 48 to set up
"""

import argparse
import math

import numpy as np
from ml_dtypes import bfloat16

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

Q_TILE, HEAD_DIM, PAGE = 16, 128, 128
SCALE = 1.0 / math.sqrt(HEAD_DIM)

BATCH = pl.dynamic("BATCH")
Q_ROWS = pl.dynamic("Q_ROWS")  # batch x query tiles x 16
KV_ROWS = pl.dynamic("KV_ROWS")  # pages x 128
MAX_PAGES = pl.dynamic("MAX_PAGES")


@pl.jit.incore
def init_inplace(
    peak: pl.Out[pl.Tensor[[Q_TILE, 1], pl.FP32]],
    total: pl.Out[pl.Tensor[[Q_TILE, 1], pl.FP32]],
    acc: pl.Out[pl.Tensor[[Q_TILE, HEAD_DIM], pl.FP32]],
):
    """The state before any block: no maximum yet, nothing summed."""
    lowest = pl.tile.full([1, Q_TILE], dtype=pl.FP32, value=-1.0e30)
    nothing = pl.tile.full([1, Q_TILE], dtype=pl.FP32, value=0.0)
    peak = pl.store(pl.reshape(lowest, [Q_TILE, 1]), [0, 0], peak)
    total = pl.store(pl.reshape(nothing, [Q_TILE, 1]), [0, 0], total)
    acc = pl.store(pl.tile.full([Q_TILE, HEAD_DIM], dtype=pl.FP32, value=0.0), [0, 0], acc)
    return peak, total, acc


@pl.jit.incore
def qk_matmul(
    q: pl.Tensor[[Q_TILE, HEAD_DIM], pl.BF16],
    k: pl.Tensor[[PAGE, HEAD_DIM], pl.BF16],
    s: pl.Out[pl.Tensor[[Q_TILE, PAGE], pl.FP32]],
):
    q_l1 = pl.load(q, [0, 0], [Q_TILE, HEAD_DIM], target_memory=pl.MemorySpace.Mat)
    k_l1 = pl.load(k, [0, 0], [PAGE, HEAD_DIM], target_memory=pl.MemorySpace.Mat)
    k_transposed = pl.tile.transpose_view(k_l1)  # the same bytes, read the other way
    q_l0 = pl.move(q_l1, target_memory=pl.MemorySpace.Left)
    k_l0 = pl.move(k_transposed, target_memory=pl.MemorySpace.Right)
    s = pl.store(pl.matmul(q_l0, k_l0), [0, 0], s)
    return s


@pl.jit.incore
def softmax_prepare(
    s: pl.Tensor[[Q_TILE, PAGE], pl.FP32],
    valid: pl.Scalar[pl.INDEX],
    p: pl.Out[pl.Tensor[[Q_TILE, PAGE], pl.BF16]],
    peak: pl.Out[pl.Tensor[[Q_TILE, 1], pl.FP32]],
    total: pl.Out[pl.Tensor[[Q_TILE, 1], pl.FP32]],
):
    scores = pl.load(s, [0, 0], [Q_TILE, PAGE], valid_shape=[Q_TILE, valid])
    scores = pl.mul(pl.fillpad(scores, pad_value=pl.PadValue.min), SCALE)  # tokens past the context get weight 0
    scratch = pl.create_tile([Q_TILE, PAGE], dtype=pl.FP32, target_memory=pl.MemorySpace.Vec)
    largest = pl.row_max(scores, scratch)
    weights = pl.cast(pl.exp(pl.row_expand_sub(scores, largest)), target_type=pl.BF16)
    summed = pl.row_sum(pl.cast(weights, target_type=pl.FP32), scratch)  # of the rounded weights, as PV uses them
    p = pl.store(weights, [0, 0], p)
    peak = pl.store(largest, [0, 0], peak)
    total = pl.store(summed, [0, 0], total)
    return p, peak, total


@pl.jit.incore
def pv_matmul(
    p: pl.Tensor[[Q_TILE, PAGE], pl.BF16],
    v: pl.Tensor[[PAGE, HEAD_DIM], pl.BF16],
    acc: pl.Out[pl.Tensor[[Q_TILE, HEAD_DIM], pl.FP32]],
):
    p_l1 = pl.load(p, [0, 0], [Q_TILE, PAGE], target_memory=pl.MemorySpace.Mat)
    v_l1 = pl.load(v, [0, 0], [PAGE, HEAD_DIM], target_memory=pl.MemorySpace.Mat)
    p_l0 = pl.move(p_l1, target_memory=pl.MemorySpace.Left)
    v_l0 = pl.move(v_l1, target_memory=pl.MemorySpace.Right)
    acc = pl.store(pl.matmul(p_l0, v_l0), [0, 0], acc)
    return acc


@pl.jit.incore
def online_update(
    block_peak: pl.Tensor[[Q_TILE, 1], pl.FP32],
    block_total: pl.Tensor[[Q_TILE, 1], pl.FP32],
    block_acc: pl.Tensor[[Q_TILE, HEAD_DIM], pl.FP32],
    peak: pl.InOut[pl.Tensor[[Q_TILE, 1], pl.FP32]],
    total: pl.InOut[pl.Tensor[[Q_TILE, 1], pl.FP32]],
    acc: pl.InOut[pl.Tensor[[Q_TILE, HEAD_DIM], pl.FP32]],
    out: pl.Out[pl.Tensor[[Q_TILE, HEAD_DIM], pl.FP32]],
):
    """Bring the old state and the new block to one maximum and add. `out` is the attention over the blocks so far."""
    # columns [16, 1] are laid down as rows for element-wise work and stood up again to scale rows
    old_peak = pl.reshape(pl.load(peak, [0, 0], [Q_TILE, 1]), [1, Q_TILE])
    new_peak = pl.reshape(pl.load(block_peak, [0, 0], [Q_TILE, 1]), [1, Q_TILE])
    both_peak = pl.maximum(old_peak, new_peak)
    keep = pl.exp(pl.sub(old_peak, both_peak))
    take = pl.exp(pl.sub(new_peak, both_peak))
    old_total = pl.mul(keep, pl.reshape(pl.load(total, [0, 0], [Q_TILE, 1]), [1, Q_TILE]))
    new_total = pl.mul(take, pl.reshape(pl.load(block_total, [0, 0], [Q_TILE, 1]), [1, Q_TILE]))
    both_total = pl.reshape(pl.add(old_total, new_total), [Q_TILE, 1])
    old_acc = pl.row_expand_mul(pl.load(acc, [0, 0], [Q_TILE, HEAD_DIM]), pl.reshape(keep, [Q_TILE, 1]))
    new_acc = pl.row_expand_mul(pl.load(block_acc, [0, 0], [Q_TILE, HEAD_DIM]), pl.reshape(take, [Q_TILE, 1]))
    both_acc = pl.add(old_acc, new_acc)
    peak = pl.store(pl.reshape(both_peak, [Q_TILE, 1]), [0, 0], peak)
    total = pl.store(both_total, [0, 0], total)
    acc = pl.store(both_acc, [0, 0], acc)
    out = pl.store(pl.row_expand_div(both_acc, both_total), [0, 0], out)
    return peak, total, acc, out


@pl.jit
def paged_attention(
    query: pl.Tensor[[Q_ROWS, HEAD_DIM], pl.BF16],
    key_cache: pl.Tensor[[KV_ROWS, HEAD_DIM], pl.BF16],
    value_cache: pl.Tensor[[KV_ROWS, HEAD_DIM], pl.BF16],
    block_table: pl.Tensor[[BATCH, MAX_PAGES], pl.INT32],
    context_lens: pl.Tensor[[BATCH], pl.INT32],
    out: pl.Out[pl.Tensor[[Q_ROWS, HEAD_DIM], pl.FP32]],
):
    batch = pl.tensor.dim(block_table, 0)
    tiles = pl.tensor.dim(query, 0) // (batch * Q_TILE)
    for b in pl.range(batch):
        context = pl.cast(pl.tensor.read(context_lens, [b]), pl.INDEX)
        pages = (context + PAGE - 1) // PAGE
        for t in pl.range(tiles):
            row = (b * tiles + t) * Q_TILE
            q = pl.slice(query, [Q_TILE, HEAD_DIM], [row, 0])
            result = pl.slice(out, [Q_TILE, HEAD_DIM], [row, 0])
            peak = pl.create_tensor([Q_TILE, 1], dtype=pl.FP32)
            total = pl.create_tensor([Q_TILE, 1], dtype=pl.FP32)
            acc = pl.create_tensor([Q_TILE, HEAD_DIM], dtype=pl.FP32)
            peak, total, acc = init_inplace(peak, total, acc)
            for j in pl.range(pages):
                kv_row = pl.cast(pl.tensor.read(block_table, [b, j]), pl.INDEX) * PAGE
                valid = pl.min(PAGE, context - j * PAGE)
                k = pl.slice(key_cache, [PAGE, HEAD_DIM], [kv_row, 0])
                v = pl.slice(value_cache, [PAGE, HEAD_DIM], [kv_row, 0])
                s = pl.create_tensor([Q_TILE, PAGE], dtype=pl.FP32)
                p = pl.create_tensor([Q_TILE, PAGE], dtype=pl.BF16)
                block_peak = pl.create_tensor([Q_TILE, 1], dtype=pl.FP32)
                block_total = pl.create_tensor([Q_TILE, 1], dtype=pl.FP32)
                block_acc = pl.create_tensor([Q_TILE, HEAD_DIM], dtype=pl.FP32)
                s = qk_matmul(q, k, s)
                p, block_peak, block_total = softmax_prepare(s, valid, p, block_peak, block_total)
                block_acc = pv_matmul(p, v, block_acc)
                peak, total, acc, result = online_update(block_peak, block_total, block_acc, peak, total, acc, result)
    return out


def golden(tensors: dict) -> None:
    """Dense attention of each row over its own context, in fp32; the weights rounded to bf16 as the program does."""
    table, lens = tensors["block_table"], tensors["context_lens"]
    batch = len(lens)
    query = tensors["query"].astype(np.float32).reshape(batch, -1, HEAD_DIM)
    out = tensors["out"].reshape(batch, -1, HEAD_DIM)
    for b in range(batch):
        pages = table[b, : -(-lens[b] // PAGE)]
        tokens = (pages[:, None] * PAGE + np.arange(PAGE)).reshape(-1)[: lens[b]]
        k, v = (tensors[name][tokens].astype(np.float32) for name in ("key_cache", "value_cache"))
        scores = query[b] @ k.T * np.float32(SCALE)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True)).astype(bfloat16).astype(np.float32)
        out[b] = weights @ v / weights.sum(axis=1, keepdims=True)


def context_lengths(batch: int, context: int, even: bool) -> np.ndarray:
    """All of them `context`, or spread from 1 to `context`, the longest first."""
    if even:
        return np.full(batch, context)
    return np.linspace(context, 1, batch).astype(int)


def specs(batch: int, heads: int, context: int, even: bool) -> list[TensorSpec]:
    tiles, pages = -(-heads // Q_TILE), -(-context // PAGE)
    kv_shape = [batch * pages * PAGE, HEAD_DIM]

    def queries(rng) -> np.ndarray:
        q = rng.normal(size=(batch, tiles * Q_TILE, HEAD_DIM))
        q[:, heads:] = 0
        return q.reshape(-1, HEAD_DIM)

    def table(rng) -> np.ndarray:
        return rng.permutation(batch * pages).reshape(batch, pages)

    return [
        TensorSpec("query", [batch * tiles * Q_TILE, HEAD_DIM], pl.BF16, init_value=queries),
        TensorSpec("key_cache", kv_shape, pl.BF16, init_value=lambda rng: rng.normal(size=kv_shape)),
        TensorSpec("value_cache", kv_shape, pl.BF16, init_value=lambda rng: rng.normal(size=kv_shape)),
        TensorSpec("block_table", [batch, pages], pl.INT32, init_value=table),
        TensorSpec("context_lens", [batch], pl.INT32, init_value=lambda: context_lengths(batch, context, even)),
        TensorSpec("out", [batch * tiles * Q_TILE, HEAD_DIM], pl.FP32, is_output=True),
    ]


def run(batch: int = 4, heads: int = 16, context: int = 600, even: bool = False) -> RunResult:
    if min(batch, heads, context) < 1:
        raise SystemExit("batch, heads and context must be at least 1")
    # weights are rounded to bf16 (1 part in 256) around each block's own maximum, in the golden around the whole row's
    return run_jit(fn=paged_attention, specs=specs(batch, heads, context, even), golden_fn=golden, rtol=1e-2, atol=1e-2)


def main() -> str | None:
    """What did not match, if anything: as an exit code that is 1 with the text printed, else 0."""
    parser = argparse.ArgumentParser(description="Paged attention, four kernels per (row, query tile, KV block).")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--heads", type=int, default=16, help="query heads of a row; tiles of 16 (default 16)")
    parser.add_argument("--context", type=int, default=600, help="longest context in tokens (default 600)")
    parser.add_argument("--even", action="store_true", help="every row as long as the longest")
    args = parser.parse_args()
    return run(args.batch, args.heads, args.context, args.even).error


if __name__ == "__main__":
    raise SystemExit(main())
