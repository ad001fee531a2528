"""Paged attention of a decode step, four kernels per 64 pages of a row's context.

Tasks, tiles and arguments are those of simpler's scene test paged_attention_unroll (Case1: 256 rows of 16 heads, pages
of 128; Case2: 64 rows of 64 heads, pages of 64; contexts of 8192): products with all keys, a softmax in two passes,
products with all values, and the update of a row's state, each through global memory. The program is our own.
"""

import argparse

import numpy as np

import npuscope.tile as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

UNROLL = 64
DIM = 128
CASES = {"Case1": (256, 16, 128, 8192), "Case2": (64, 64, 64, 8192), "small": (4, 16, 128, 1024)}
ROWS = pl.dynamic("ROWS")
KV = pl.dynamic("KV")
BATCH = pl.dynamic("BATCH")
PAGES = pl.dynamic("PAGES")
SPAN = pl.dynamic("SPAN")


def program(heads: int, page: int):
    """The entry for rows of so many heads of one KV head and pages of so many tokens."""

    @pl.jit.incore
    def qk_matmul(
        q: pl.Tensor[[heads, DIM], pl.BF16],
        keys: pl.Tensor[[KV, DIM], pl.BF16],
        table: pl.Tensor[[BATCH, PAGES], pl.INT32],
        row: pl.Scalar[pl.INDEX],
        first: pl.Scalar[pl.INDEX],
        pages: pl.Scalar[pl.INDEX],
        s: pl.Out[pl.Tensor[[SPAN, page], pl.FP32]],
    ):
        q_l1 = pl.load(q, [0, 0], [heads, DIM], target_memory=pl.MemorySpace.Mat)
        for n in pl.pipeline(0, pages, stage=2):
            at = pl.cast(pl.tensor.read(table, [row, first + n]), pl.INDEX) * page
            k_l1 = pl.load(keys, [at, 0], [page, DIM], target_memory=pl.MemorySpace.Mat)
            q_l0 = pl.move(q_l1, target_memory=pl.MemorySpace.Left)
            k_l0 = pl.move(pl.tile.transpose_view(k_l1), target_memory=pl.MemorySpace.Right)
            s = pl.store(pl.matmul(q_l0, k_l0), [n * heads, 0], s)
        return s

    @pl.jit.incore
    def softmax_prepare(
        s: pl.Tensor[[SPAN, page], pl.FP32],
        pages: pl.Scalar[pl.INDEX],
        p: pl.Out[pl.Tensor[[SPAN, page], pl.BF16]],
        peak: pl.Out[pl.Tensor[[heads, 1], pl.FP32]],
        total: pl.Out[pl.Tensor[[heads, 1], pl.FP32]],
    ):
        scratch = pl.create_tile([heads, page], dtype=pl.FP32, target_memory=pl.MemorySpace.Vec)
        largest = pl.reshape(pl.row_max(pl.load(s, [0, 0], [heads, page]), scratch), [1, heads])
        for n in pl.pipeline(1, pages, stage=2):
            own = pl.row_max(pl.load(s, [n * heads, 0], [heads, page]), scratch)
            largest = pl.maximum(largest, pl.reshape(own, [1, heads]))
        column = pl.reshape(largest, [heads, 1])
        peak = pl.store(column, [0, 0], peak)
        summed = pl.tile.full([heads, page], dtype=pl.FP32, value=0.0)
        for n in pl.range(pages):
            scores = pl.load(s, [n * heads, 0], [heads, page])
            weights = pl.cast(pl.exp(pl.row_expand_sub(scores, column)), target_type=pl.BF16)
            summed = pl.add(summed, pl.cast(weights, target_type=pl.FP32))
            p = pl.store(weights, [n * heads, 0], p)
        total = pl.store(pl.row_sum(summed, scratch), [0, 0], total)
        return p, peak, total

    @pl.jit.incore
    def pv_matmul(
        p: pl.Tensor[[SPAN, page], pl.BF16],
        values: pl.Tensor[[KV, DIM], pl.BF16],
        table: pl.Tensor[[BATCH, PAGES], pl.INT32],
        row: pl.Scalar[pl.INDEX],
        first: pl.Scalar[pl.INDEX],
        pages: pl.Scalar[pl.INDEX],
        acc: pl.Out[pl.Tensor[[heads, DIM], pl.FP32]],
    ):
        at = pl.cast(pl.tensor.read(table, [row, first]), pl.INDEX) * page
        p_l1 = pl.load(p, [0, 0], [heads, page], target_memory=pl.MemorySpace.Mat)
        v_l1 = pl.load(values, [at, 0], [page, DIM], target_memory=pl.MemorySpace.Mat)
        summed = pl.matmul(
            pl.move(p_l1, target_memory=pl.MemorySpace.Left), pl.move(v_l1, target_memory=pl.MemorySpace.Right)
        )
        for n in pl.pipeline(1, pages, stage=2):
            at = pl.cast(pl.tensor.read(table, [row, first + n]), pl.INDEX) * page
            p_l1 = pl.load(p, [n * heads, 0], [heads, page], target_memory=pl.MemorySpace.Mat)
            v_l1 = pl.load(values, [at, 0], [page, DIM], target_memory=pl.MemorySpace.Mat)
            p_l0 = pl.move(p_l1, target_memory=pl.MemorySpace.Left)
            v_l0 = pl.move(v_l1, target_memory=pl.MemorySpace.Right)
            summed = pl.matmul_acc(summed, p_l0, v_l0)
        acc = pl.store(summed, [0, 0], acc)
        return acc

    @pl.jit.incore
    def online_update(
        block_peak: pl.Tensor[[heads, 1], pl.FP32],
        block_total: pl.Tensor[[heads, 1], pl.FP32],
        block_acc: pl.Tensor[[heads, DIM], pl.FP32],
        first: pl.Scalar[pl.INDEX],
        peak: pl.InOut[pl.Tensor[[heads, 1], pl.FP32]],
        total: pl.InOut[pl.Tensor[[heads, 1], pl.FP32]],
        acc: pl.InOut[pl.Tensor[[heads, DIM], pl.FP32]],
        out: pl.InOut[pl.Tensor[[heads, DIM], pl.FP32]],
    ):
        new_peak = pl.reshape(pl.load(block_peak, [0, 0], [heads, 1]), [1, heads])
        new_total = pl.reshape(pl.load(block_total, [0, 0], [heads, 1]), [1, heads])
        new_acc = pl.load(block_acc, [0, 0], [heads, DIM])
        if first == 0:
            peak = pl.store(pl.reshape(new_peak, [heads, 1]), [0, 0], peak)
            total = pl.store(pl.reshape(new_total, [heads, 1]), [0, 0], total)
            acc = pl.store(new_acc, [0, 0], acc)
            out = pl.store(pl.row_expand_div(new_acc, pl.reshape(new_total, [heads, 1])), [0, 0], out)
        else:
            old_peak = pl.reshape(pl.load(peak, [0, 0], [heads, 1]), [1, heads])
            both_peak = pl.maximum(old_peak, new_peak)
            keep = pl.exp(pl.sub(old_peak, both_peak))
            take = pl.exp(pl.sub(new_peak, both_peak))
            old_total = pl.mul(keep, pl.reshape(pl.load(total, [0, 0], [heads, 1]), [1, heads]))
            both_total = pl.reshape(pl.add(old_total, pl.mul(take, new_total)), [heads, 1])
            old_acc = pl.row_expand_mul(pl.load(acc, [0, 0], [heads, DIM]), pl.reshape(keep, [heads, 1]))
            both_acc = pl.add(old_acc, pl.row_expand_mul(new_acc, pl.reshape(take, [heads, 1])))
            peak = pl.store(pl.reshape(both_peak, [heads, 1]), [0, 0], peak)
            total = pl.store(both_total, [0, 0], total)
            acc = pl.store(both_acc, [0, 0], acc)
            out = pl.store(pl.row_expand_div(both_acc, both_total), [0, 0], out)
        return peak, total, acc, out

    @pl.jit
    def paged_attention_unroll(
        query: pl.Tensor[[ROWS, DIM], pl.BF16],
        keys: pl.Tensor[[KV, DIM], pl.BF16],
        values: pl.Tensor[[KV, DIM], pl.BF16],
        table: pl.Tensor[[BATCH, PAGES], pl.INT32],
        lengths: pl.Tensor[[BATCH], pl.INT32],
        out: pl.Out[pl.Tensor[[ROWS, DIM], pl.FP32]],
    ):
        for b in pl.range(pl.tensor.dim(table, 0)):
            pages = (pl.cast(pl.tensor.read(lengths, [b]), pl.INDEX) + page - 1) // page
            q = pl.slice(query, [heads, DIM], [b * heads, 0])
            result = pl.slice(out, [heads, DIM], [b * heads, 0])
            peak = pl.create_tensor([heads, 1], dtype=pl.FP32)
            total = pl.create_tensor([heads, 1], dtype=pl.FP32)
            acc = pl.create_tensor([heads, DIM], dtype=pl.FP32)
            for first in pl.range(0, pages, UNROLL):
                count = pl.min(UNROLL, pages - first)
                s = pl.create_tensor([count * heads, page], dtype=pl.FP32)
                p = pl.create_tensor([count * heads, page], dtype=pl.BF16)
                block_peak = pl.create_tensor([heads, 1], dtype=pl.FP32)
                block_total = pl.create_tensor([heads, 1], dtype=pl.FP32)
                block_acc = pl.create_tensor([heads, DIM], dtype=pl.FP32)
                s = qk_matmul(q, keys, table, b, first, count, s)
                p, block_peak, block_total = softmax_prepare(s, count, p, block_peak, block_total)
                block_acc = pv_matmul(p, values, table, b, first, count, block_acc)
                peak, total, acc, result = online_update(
                    block_peak, block_total, block_acc, first, peak, total, acc, result
                )
        return out

    return paged_attention_unroll


def run(case: str = "Case1") -> RunResult:
    batch, heads, page, context = CASES[case]
    pages = context // page
    kv, rows = [batch * pages * page, DIM], [batch * heads, DIM]

    def golden(tensors: dict) -> None:
        for b in range(batch):
            tokens = (tensors["table"][b, :pages, None] * page + np.arange(page)).reshape(-1)
            k, v = (tensors[name][tokens].astype(np.float32) for name in ("keys", "values"))
            scores = tensors["query"][b * heads : (b + 1) * heads].astype(np.float32) @ k.T
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            tensors["out"][b * heads : (b + 1) * heads] = weights @ v / weights.sum(axis=1, keepdims=True)

    def table(rng) -> np.ndarray:
        return rng.integers(0, batch * pages, size=(batch, pages))

    specs = [
        TensorSpec("query", rows, pl.BF16, init_value=lambda rng: rng.uniform(-0.5, 0.5, size=rows)),
        TensorSpec("keys", kv, pl.BF16, init_value=lambda rng: rng.uniform(-0.5, 0.5, size=kv)),
        TensorSpec("values", kv, pl.BF16, init_value=lambda rng: rng.uniform(-1, 1, size=kv)),
        TensorSpec("table", [batch, pages], pl.INT32, init_value=table),
        TensorSpec("lengths", [batch], pl.INT32, init_value=lambda: np.full(batch, context)),
        TensorSpec("out", rows, pl.FP32, is_output=True),
    ]
    return run_jit(fn=program(heads, page), specs=specs, golden_fn=golden, rtol=1e-2, atol=1e-2)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, default="Case1")
    raise SystemExit(run(parser.parse_args().case).error)
