"""Reads beyond L2, and loops of matmuls that wait for their own loads."""

from __future__ import annotations

from typing import Any

import pytest
from linted import found, only

import npuscope.tile as pl
from npuscope.check.rule import Waste

L2_M, L2_K, L2_N, TILE = 32, 4096, 32768, 2048
WEIGHT = L2_K * L2_N * 2  # 268 MB; L2 has 201
A: Any = pl.Tensor[[L2_M, L2_K], pl.BF16]
B: Any = pl.Tensor[[L2_K, L2_N], pl.BF16]
C: Any = pl.Out[pl.Tensor[[L2_M, L2_N], pl.FP32]]


@pl.jit
def rows_outside(a: A, b: B, c: C):
    for m in pl.parallel(0, L2_M, 16):
        for n in pl.parallel(0, L2_N, TILE):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
                acc = pl.matmul(a[m : m + 16, 0:64], b[0:64, n : n + TILE], out_dtype=pl.FP32)  # rows outside
                for k in pl.pipeline(64, L2_K, 64, stage=2):
                    acc = pl.matmul_acc(acc, a[m : m + 16, k : k + 64], b[k : k + 64, n : n + TILE])
                c[m : m + 16, n : n + TILE] = acc
    return c


@pl.jit
def rows_inside(a: A, b: B, c: C):
    for n in pl.parallel(0, L2_N, TILE):
        for m in pl.parallel(0, L2_M, 16):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
                acc = pl.matmul(a[m : m + 16, 0:64], b[0:64, n : n + TILE], out_dtype=pl.FP32)
                for k in pl.pipeline(64, L2_K, 64, stage=2):
                    acc = pl.matmul_acc(acc, a[m : m + 16, k : k + 64], b[k : k + 64, n : n + TILE])
                c[m : m + 16, n : n + TILE] = acc
    return c


@pl.jit
def blocks_rows_outside(a: A, b: B, c: C):
    for item in pl.spmd(L2_M // 16 * (L2_N // TILE), name_hint="product"):
        m = item // (L2_N // TILE) * 16
        n = item % (L2_N // TILE) * TILE
        acc = pl.matmul(a[m : m + 16, 0:64], b[0:64, n : n + TILE], out_dtype=pl.FP32)  # blocks
        for k in pl.pipeline(64, L2_K, 64, stage=2):
            acc = pl.matmul_acc(acc, a[m : m + 16, k : k + 64], b[k : k + 64, n : n + TILE])
        c[m : m + 16, n : n + TILE] = acc
    return c


def test_the_weight_is_read_again_after_all_of_it_has_passed() -> None:
    for entry, mark in ((rows_outside, "# rows outside"), (blocks_rows_outside, "# blocks")):
        finding = only("l2-overflow", entry, mark)
        assert finding.waste == Waste(bytes=WEIGHT)
        assert "reads 537 MB of b, which has 268 MB" in finding.message
        assert finding.severity == "warning"


def test_read_by_neighbours_it_stays_in_the_cache() -> None:
    assert not found("l2-overflow", rows_inside)


def product(steps: int, k: int, n: int, piped: bool = False) -> Any:
    """A [16, n] product in steps of k."""

    @pl.jit
    def gemm(
        a: pl.Tensor[[16, steps * k], pl.BF16],
        b: pl.Tensor[[steps * k, n], pl.BF16],
        c: pl.Out[pl.Tensor[[16, n], pl.FP32]],
    ):
        for _ in pl.spmd(1, name_hint="gemm"):
            acc = pl.matmul(a[:, 0:k], b[0:k, 0:n])
            if piped:
                for step in pl.pipeline(1, steps, stage=2):
                    acc = pl.matmul_acc(acc, a[:, step * k : (step + 1) * k], b[step * k : (step + 1) * k, :])
            else:
                for step in pl.range(1, steps):  # no pipeline
                    acc = pl.matmul_acc(acc, a[:, step * k : (step + 1) * k], b[step * k : (step + 1) * k, :])
            c[:, :] = acc
        return c

    return gemm


def test_a_k_loop_that_waits_for_its_loads_is_told_with_the_line_that_does_not() -> None:
    finding = only("unpipelined-k", product(5, 128, 256), "# no pipeline")
    # a turn loads [16, 128] and [128, 256] of bf16; two turns' tiles take twice that of Mat
    assert "4 turns of matmul each wait for their own loads (69,632 bytes a turn)" in finding.message
    assert "139,264 of 524,288" in finding.remedy
    assert finding.change == "for step in pl.pipeline(1, steps, stage=2):"
    # loading takes longer than multiplying, so the multiplying is what can be hidden
    assert finding.waste == Waste(flops=4 * 2 * 16 * 128 * 256)


@pl.jit
def hands_on(
    a: pl.Tensor[[16, 64], pl.BF16], b: pl.Tensor[[64, 64], pl.BF16], c: pl.InOut[pl.Tensor[[16, 64], pl.BF16]]
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="power"):
        c[:, :] = a[:, :]
        for _ in pl.range(4):
            c[:, :] = pl.matmul(c[:, :], b[:, :], out_dtype=pl.BF16)  # loads what the turn before has stored
    return c


@pl.jit
def columns_outside(
    a: pl.Tensor[[16, 512], pl.BF16], b: pl.Tensor[[512, 512], pl.BF16], c: pl.Out[pl.Tensor[[16, 512], pl.FP32]]
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="columns"):
        for n in pl.range(0, 512, 128):
            acc = pl.matmul(a[:, 0:128], b[0:128, n : n + 128])
            for k in pl.pipeline(128, 512, 128, stage=2):
                acc = pl.matmul_acc(acc, a[:, k : k + 128], b[k : k + 128, n : n + 128])
            c[:, n : n + 128] = acc
    return c


@pytest.mark.parametrize(
    "entry",
    [
        product(5, 128, 256, piped=True),
        product(3, 128, 256),  # two turns: nothing much to overlap
        product(5, 512, 512),  # two [512, 512] tiles do not fit
        hands_on,
        columns_outside,
    ],
)
def test_loops_that_have_a_pipeline_or_cannot_have_one(entry: Any) -> None:
    assert not found("unpipelined-k", entry)
