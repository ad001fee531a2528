"""Sums that live in global memory, and sums that do not."""

from __future__ import annotations

from typing import Any

import pytest
from linted import found, line_of, model, only

import npuscope.tile as pl
from npuscope.check.rule import Waste

STEPS, K, N = 4, 64, 256
SUM = 16 * N * 4


A: Any = pl.Tensor[[16, STEPS * K], pl.BF16]
B: Any = pl.Tensor[[STEPS * K, N], pl.BF16]
C: Any = pl.Out[pl.Tensor[[16, N], pl.FP32]]


@pl.jit
def by_tasks(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)
    for k in pl.range(0, STEPS * K, K):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="step"):
            so_far = c[:, :]
            c[:, :] = pl.add(so_far, pl.matmul(a[:, k : k + K], b[k : k + K, :]))  # by tasks
    return c


@pl.jit
def by_turns(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="steps"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)  # by turns
        for k in pl.range(0, STEPS * K, K):
            c[:, :] = pl.add(c[:, :], pl.matmul(a[:, k : k + K], b[k : k + K, :]))
    return c


@pl.jit
def on_chip(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="steps"):
        acc = pl.matmul(a[:, 0:K], b[0:K, :], out_dtype=pl.FP32)
        for k in pl.pipeline(K, STEPS * K, K, stage=2):
            acc = pl.matmul_acc(acc, a[:, k : k + K], b[k : k + K, :])
        c[:, :] = acc
    return c


SUM_IN: Any = pl.InOut[pl.Tensor[[16, N], pl.FP32]]


@pl.jit
def atomic(a: A, b: B, c: SUM_IN):
    for k in pl.parallel(0, STEPS * K, K):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="part"):
            part = pl.matmul(a[:, k : k + K], b[k : k + K, :])
            c = pl.assemble(c, part, [0, 0], atomic=pl.AtomicType.Add)
    return c


@pl.jit
def read_in_between(a: A, b: B, c: SUM_IN):
    """A residual that every layer adds to and that the next one needs: no sum to keep on chip."""
    hidden = pl.create_tensor([16, N], dtype=pl.FP32)
    for _ in pl.range(STEPS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="layer"):
            hidden[:, :] = pl.exp(c[:, :])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="residual"):
            c[:, :] = pl.add(c[:, :], hidden[:, :])
    return c


@pytest.mark.parametrize(
    ("entry", "mark", "cost"),
    [
        (by_tasks, "# by tasks", (2 * STEPS - 1) * SUM),  # four times each way, where one write would do
        (by_turns, "# by turns", 2 * STEPS * SUM),  # five writes (the zeros too) and four reads
    ],
)
def test_sums_in_memory(entry: Any, mark: str, cost: int) -> None:
    finding = only("gm-accumulate", entry, mark)
    assert finding.waste == Waste(bytes=cost)
    assert "every tile of c" in finding.message


@pytest.mark.parametrize("entry", [on_chip, atomic, read_in_between], ids=["on chip", "atomic", "read in between"])
def test_sums_elsewhere(entry: Any) -> None:
    assert not found("gm-accumulate", entry)


def test_the_down_projection_of_the_tilelet_as_found() -> None:
    ((line, finding),) = found("gm-accumulate", model("qwen3_32b_tilelet", "--as-found")).items()
    assert line == line_of(finding.file, "down_proj = pl.assemble(down_proj, pl.add(so_far, part)")
    # 512 columns of the MLP in 64s: 8 times [16, 2048] fp32 each way, where one write would do
    assert finding.waste == Waste(bytes=15 * 16 * 2048 * 4)
