"""Loops of matmuls without a second buffer: told where one would fit."""

from __future__ import annotations

from typing import Any

import pytest
from linted import found, line_of, program

import npuscope.tile as pl
from npuscope.check.rule import Waste


def product(steps: int, k: int, n: int, piped: bool = False) -> Any:
    """A [16, n] product in steps of k."""

    @pl.jit
    def gemm(
        a: pl.Tensor[[16, steps * k], pl.BF16],
        b: pl.Tensor[[steps * k, n], pl.BF16],
        c: pl.Out[pl.Tensor[[16, n], pl.FP32]],
    ):
        for _ in pl.spmd(1, name_hint="gemm"):
            acc = pl.matmul(a[:, 0:k], b[0:k, :])
            if piped:
                for step in pl.pipeline(1, steps, stage=2):
                    acc = pl.matmul_acc(acc, a[:, step * k : (step + 1) * k], b[step * k : (step + 1) * k, :])
            else:
                for step in pl.range(1, steps):  # no pipeline
                    acc = pl.matmul_acc(acc, a[:, step * k : (step + 1) * k], b[step * k : (step + 1) * k, :])
            c[:, :] = acc
        return c

    return gemm


def shapes(steps: int, k: int, n: int) -> tuple[tuple[str, int, int], ...]:
    return ("BF16", 16, steps * k), ("BF16", steps * k, n), ("FP32", 16, n)


def test_a_k_loop_that_waits_for_its_loads_is_told_with_the_line_that_does_not() -> None:
    (finding,) = found("unpipelined-k", program(product(5, 128, 256), *shapes(5, 128, 256))).values()
    assert finding.line == line_of(__file__, "# no pipeline")
    # a turn loads [16, 128] and [128, 256] of bf16; two turns' tiles take twice that of Mat
    assert "4 turns of matmul each wait for their own loads (69,632 bytes a turn)" in finding.message
    assert "139,264 of 524,288" in finding.fix
    assert finding.change == "for step in pl.pipeline(1, steps, stage=2):"
    # loading takes longer than multiplying, so the multiplying is what can be hidden
    assert finding.waste == Waste(flops=4 * 2 * 16 * 128 * 256)


@pytest.mark.parametrize(
    ("steps", "k", "n", "piped"),
    [
        (5, 128, 256, True),
        (3, 128, 256, False),  # two turns: nothing much to overlap
        (5, 512, 512, False),  # two [512, 512] tiles do not fit
    ],
)
def test_loops_that_have_a_pipeline_or_cannot_have_one(steps: int, k: int, n: int, piped: bool) -> None:
    assert not found("unpipelined-k", program(product(steps, k, n, piped), *shapes(steps, k, n)))


@pl.jit
def hands_on(
    a: pl.Tensor[[16, 64], pl.BF16], b: pl.Tensor[[64, 64], pl.BF16], c: pl.InOut[pl.Tensor[[16, 64], pl.BF16]]
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="power"):
        c[:, :] = a[:, :]
        for _ in pl.range(4):
            c[:, :] = pl.matmul(c[:, :], b[:, :], out_dtype=pl.BF16)  # loads what the turn before has stored
    return c


def test_a_loop_that_loads_its_own_results_cannot_load_ahead() -> None:
    assert not found("unpipelined-k", program(hands_on, ("BF16", 16, 64), ("BF16", 64, 64), ("BF16", 16, 64)))


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


def test_a_loop_over_columns_around_a_pipelined_one_is_fine() -> None:
    assert not found(
        "unpipelined-k", program(columns_outside, ("BF16", 16, 512), ("BF16", 512, 512), ("FP32", 16, 512))
    )
