"""Small tiles, cast chains, loads without a use, and pipelines deeper than memory."""

from __future__ import annotations

from typing import Any

from linted import found, only, program

import npuscope.tile as pl
from npuscope.check.rule import Waste


def product(k: int, n: int) -> Any:
    """[16, 1024] x [1024, n] with steps of k in tiles of n columns of a wider matrix."""

    @pl.jit
    def gemm(
        a: pl.Tensor[[16, 256], pl.BF16], b: pl.Tensor[[256, 256], pl.BF16], c: pl.Out[pl.Tensor[[16, 256], pl.FP32]]
    ):
        for block in pl.spmd(256 // n, name_hint="gemm"):
            acc = pl.matmul(a[:, 0:k], b[0:k, block * n : (block + 1) * n])
            for step in pl.pipeline(1, 256 // k, stage=2):
                left = a[:, step * k : (step + 1) * k]
                acc = pl.matmul_acc(acc, left, b[step * k : (step + 1) * k, block * n : (block + 1) * n])  # small
            c[:, block * n : (block + 1) * n] = acc
        return c

    return gemm


def test_a_matmul_shorter_than_its_start_is_told() -> None:
    small = only("tile-size", product(32, 64), "# small")
    assert len(small.also) == 1  # the first step, which has its own line
    # [16, 32] x [32, 64]: 1 x 2 x 4 fractals, a cycle each, after 21 cycles to start
    assert "of 29 cycles 21 go into starting it (72%)" in small.message
    # 4 blocks x 8 steps, 21 cycles in which the cube could have done 8192 FLOPs each
    assert small.waste == Waste(flops=4 * 8 * 21 * 8192)


def test_a_larger_tile_or_one_that_cannot_be_larger_is_fine() -> None:
    assert not found("tile-size", product(128, 128))
    assert not found("tile-size", whole_product)


@pl.jit
def whole_product(
    a: pl.Tensor[[16, 32], pl.BF16], b: pl.Tensor[[32, 64], pl.BF16], c: pl.Out[pl.Tensor[[16, 64], pl.FP32]]
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="gemm"):
        c[:, :] = pl.matmul(a, b)
    return c


@pl.jit
def quantised(x: pl.Tensor[[16, 128], pl.BF16], y: pl.Out[pl.Tensor[[16, 128], pl.INT8]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="quantise"):
        y[:, :] = pl.cast(x[:, :], target_type=pl.INT8)  # three hops
    return y


@pl.jit
def step_by_step(x: pl.Tensor[[16, 128], pl.BF16], y: pl.Out[pl.Tensor[[16, 128], pl.INT8]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="quantise"):
        half = pl.cast(pl.cast(x[:, :], target_type=pl.FP32), target_type=pl.FP16)
        y[:, :] = pl.cast(half, target_type=pl.INT8, mode="trunc")
    return y


@pl.jit
def drained(a: pl.Tensor[[16, 32], pl.BF16], b: pl.Tensor[[32, 64], pl.BF16], c: pl.Out[pl.Tensor[[16, 64], pl.BF16]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="gemm"):
        c[:, :] = pl.matmul(a, b, out_dtype=pl.BF16)
    return c


def test_a_cast_without_an_instruction_is_told_with_its_way() -> None:
    finding = only("cast-chain", quantised, "# three hops")
    assert "3 passes: BF16 -> FP32 -> FP16 -> INT8" in finding.message  # as values are cast, too
    assert finding.waste == Waste(flops=2 * 16 * 128)  # two passes more than one


def test_casts_of_one_instruction_are_fine() -> None:
    assert not found("cast-chain", step_by_step)
    assert not found("cast-chain", drained)


@pl.jit
def forgotten(x: pl.Tensor[[16, 128], pl.FP32], y: pl.Out[pl.Tensor[[16, 128], pl.FP32]], n: pl.Scalar):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="k"):
        left_over = x[:, 0:64]  # noqa: F841 (forgotten on purpose)
        sometimes = x[:, 64:128]
        part = x[:, :]
        for _ in pl.range(n):
            part = pl.concat(part[:, 0:64], sometimes)
        y[:, :] = pl.mul(part, 2.0)
    return y


def test_a_load_that_nothing_uses_is_told_but_not_one_for_a_loop_that_did_not_turn() -> None:
    checked = program(forgotten, 0)
    finding = only("unused-load", checked, "forgotten on purpose")
    assert finding.waste == Waste(bytes=16 * 64 * 4)


def deep(stage: int) -> Any:
    """Rows of 16 KB doubled three times over, `stage` turns in flight."""

    @pl.jit
    def many(x: pl.Tensor[[16, 8192], pl.FP32], y: pl.Out[pl.Tensor[[16, 8192], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="deep"):
            for n in pl.pipeline(0, 8192, 512, stage=stage):
                once = x[:, n : n + 512]
                twice = pl.mul(once, 2.0)  # given up
                y[:, n : n + 512] = pl.add(once, pl.exp(twice))
        return y

    return many


def test_a_pipeline_whose_buffers_do_not_fit_is_told() -> None:
    assert not found("pipeline-depth", deep(2))
    finding = only("pipeline-depth", deep(4))
    assert "turns in flight" in finding.message
    assert "Vec" in finding.remedy
