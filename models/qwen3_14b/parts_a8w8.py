"""What kernels of the A8W8 layer do inside a task, beside parts.py: quantise, multiply whole numbers, scale back."""

from __future__ import annotations

from typing import Any

import npuscope.tile as pl
from qwen3_14b.config import ROWS
from qwen3_14b.golden_a8w8 import SMALLEST_AMAX


def quantise(width: int, chunk: int, transposed: bool, whole_as: Any = pl.INT8) -> Any:
    """x [ROWS, width] to INT8 with a scale per row. `transposed`: the rows' maxima are found as a row, not a column.

    `whole_as` FP16 keeps the whole numbers in that type, for a kernel that makes INT8 of them itself.
    """

    @pl.jit.inline
    def quantised(x: pl.Tensor, whole: pl.Tensor, scales: pl.Tensor):
        if transposed:
            tops = pl.full([1, ROWS], dtype=pl.FP32, value=SMALLEST_AMAX)
            for i in pl.range(width // chunk):
                part = pl.cast(x[:, i * chunk : (i + 1) * chunk], target_type=pl.FP32)
                top = pl.row_max(pl.maximum(part, pl.neg(part)))
                tops = pl.maximum(tops, pl.reshape(top, [1, ROWS]))
            amax = pl.reshape(tops, [ROWS, 1])
        else:
            amax = pl.full([ROWS, 1], dtype=pl.FP32, value=SMALLEST_AMAX)
            for i in pl.range(width // chunk):
                part = pl.cast(x[:, i * chunk : (i + 1) * chunk], target_type=pl.FP32)
                amax = pl.maximum(amax, pl.row_max(pl.maximum(part, pl.neg(part))))
        scales = pl.assemble(scales, pl.mul(amax, 1.0 / 127.0), [0, 0])
        factor = pl.mul(pl.recip(amax), 127.0)
        for i in pl.range(width // chunk):
            part = pl.cast(x[:, i * chunk : (i + 1) * chunk], target_type=pl.FP32)
            rounded = pl.cast(pl.row_expand_mul(part, factor), target_type=pl.INT32, mode="rint")
            low = pl.full([ROWS, chunk], dtype=pl.INT32, value=-127)
            high = pl.full([ROWS, chunk], dtype=pl.INT32, value=127)
            half = pl.cast(pl.minimum(pl.maximum(rounded, low), high), target_type=pl.FP16, mode="round")
            if whole_as is pl.INT8:
                whole = pl.assemble(whole, pl.cast(half, target_type=pl.INT8, mode="trunc"), [0, i * chunk])
            else:
                whole = pl.assemble(whole, half, [0, i * chunk])
        return whole

    return quantised


def int8_tile(tk: int, tn: int, steps: int) -> Any:
    """[ROWS, tn] of an INT8 projection over `steps` cube steps of tk: the INT32 accumulator."""

    @pl.jit.inline
    def tile(acts: pl.Tensor, weight: pl.Tensor, k0: pl.Scalar, weight_row: pl.Scalar, n0: pl.Scalar):
        acc = pl.matmul(acts[:, k0 : k0 + tk], weight[weight_row : weight_row + tk, n0 : n0 + tn], out_dtype=pl.INT32)
        for step in pl.range(1, steps):
            k = k0 + step * tk
            row = weight_row + step * tk
            acc = pl.matmul_acc(acc, acts[:, k : k + tk], weight[row : row + tk, n0 : n0 + tn])
        return acc

    return tile


def cast_tile(tk: int, tn: int, steps: int) -> Any:
    """As int8_tile, of an activation in FP16: every step casts its part on the vector cores and hands it to the cube.

    Weights are double-buffered. With tn 512 the two weight tiles and the ring that activation and accumulator pass
    through do not fit into Mat, as the tracking issue reports of its gate_proj and up_proj.
    """

    @pl.jit.inline
    def tile(acts: pl.Tensor, weight: pl.Tensor, k0: pl.Scalar, weight_row: pl.Scalar, n0: pl.Scalar):
        act = pl.cast(acts[:, k0 : k0 + tk], target_type=pl.INT8, mode="trunc")
        acc = pl.matmul(act, weight[weight_row : weight_row + tk, n0 : n0 + tn], out_dtype=pl.INT32)
        for step in pl.pipeline(1, steps, stage=2):
            k = k0 + step * tk
            row = weight_row + step * tk
            part = pl.cast(acts[:, k : k + tk], target_type=pl.INT8, mode="trunc")
            acc = pl.matmul_acc(acc, part, weight[row : row + tk, n0 : n0 + tn])
        return acc

    return tile


def dequantise() -> Any:
    """An INT32 accumulator to fp32: times a scale per column [1, n], times a scale per row [ROWS, 1]."""

    @pl.jit.inline
    def scaled(acc: pl.Tensor, columns: pl.Tensor, rows: pl.Tensor):
        return pl.row_expand_mul(pl.col_expand_mul(pl.cast(acc, target_type=pl.FP32), columns), rows)

    return scaled


def dual_tile(tk: int, tn: int, steps: int) -> Any:
    """Two INT8 projections of one activation, two accumulators live at once: the activation is read once."""

    @pl.jit.inline
    def tile(acts: pl.Tensor, weight_a: pl.Tensor, weight_b: pl.Tensor, weight_row: pl.Scalar, n0: pl.Scalar):
        act = acts[:, 0:tk]
        acc_a = pl.matmul(act, weight_a[weight_row : weight_row + tk, n0 : n0 + tn], out_dtype=pl.INT32)
        acc_b = pl.matmul(act, weight_b[weight_row : weight_row + tk, n0 : n0 + tn], out_dtype=pl.INT32)
        for step in pl.range(1, steps):
            k = step * tk
            row = weight_row + k
            acc_a, acc_b = pl.matmul_dual_acc(
                acc_a, acc_b, acts[:, k : k + tk],
                weight_a[row : row + tk, n0 : n0 + tn], weight_b[row : row + tk, n0 : n0 + tn],
            )  # fmt: skip
        return acc_a, acc_b

    return tile


def down_pair(tk: int, tn: int, steps: int) -> Any:
    """Two neighbouring N tiles of down_proj over one part of K, every tile's memory space said, partial sums stored."""

    @pl.jit.inline
    def tile(
        acts: pl.Tensor, weight: pl.Tensor, out: pl.Tensor,
        k0: pl.Scalar, weight_row: pl.Scalar, n0: pl.Scalar, out_row: pl.Scalar,
    ):  # fmt: skip
        act_mat = pl.load(acts, [0, k0], [ROWS, tk], target_memory=pl.MemorySpace.Mat)
        act = pl.move(act_mat, target_memory=pl.MemorySpace.Left)
        left_mat = pl.load(weight, [weight_row, n0], [tk, tn], target_memory=pl.MemorySpace.Mat)
        first = pl.matmul(act, pl.move(left_mat, target_memory=pl.MemorySpace.Right))
        right_mat = pl.load(weight, [weight_row, n0 + tn], [tk, tn], target_memory=pl.MemorySpace.Mat)
        second = pl.matmul(act, pl.move(right_mat, target_memory=pl.MemorySpace.Right))
        for step, (acc_a, acc_b) in pl.pipeline(1, steps, stage=2, init_values=(first, second)):
            k = step * tk
            act_mat = pl.load(acts, [0, k0 + k], [ROWS, tk], target_memory=pl.MemorySpace.Mat)
            act = pl.move(act_mat, target_memory=pl.MemorySpace.Left)
            left_mat = pl.load(weight, [weight_row + k, n0], [tk, tn], target_memory=pl.MemorySpace.Mat)
            next_a = pl.matmul_acc(acc_a, act, pl.move(left_mat, target_memory=pl.MemorySpace.Right))
            right_mat = pl.load(weight, [weight_row + k, n0 + tn], [tk, tn], target_memory=pl.MemorySpace.Mat)
            next_b = pl.matmul_acc(acc_b, act, pl.move(right_mat, target_memory=pl.MemorySpace.Right))
            sum_a, sum_b = pl.yield_(next_a, next_b)
        out = pl.store(sum_a, [out_row, n0], out)
        out = pl.store(sum_b, [out_row, n0 + tn], out)
        return out

    return tile
