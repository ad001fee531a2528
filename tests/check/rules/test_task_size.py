"""Tasks too many, too short, or not filling the cores; and twins that are none of it."""

from __future__ import annotations

from typing import Any

import pytest
from linted import found, line_of, model, only

import npuscope.tile as pl
from npuscope.check.rule import Waste

MANY, SHORT, WAVE = "many-tasks", "short-task", "partial-wave"
ROWS = 32
X: Any = pl.Tensor[[ROWS * 16, 256], pl.FP32]


@pl.jit
def one_by_one(x: X, y: pl.Out[X]):
    for r in pl.parallel(ROWS):  # one by one
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
            y[r * 16 : r * 16 + 16, :] = pl.exp(x[r * 16 : r * 16 + 16, :])
    return y


@pl.jit
def in_two_loops(x: X, y: pl.Out[X]):
    for r in pl.parallel(0, ROWS * 16, 64):
        for n in pl.parallel(0, 256, 128):  # in two loops
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
                y[r : r + 64, n : n + 128] = pl.exp(x[r : r + 64, n : n + 128])
    return y


@pl.jit
def one_launch(x: X, y: pl.Out[X]):
    for r in pl.spmd(ROWS, name_hint="root"):
        y[r * 16 : r * 16 + 16, :] = pl.exp(x[r * 16 : r * 16 + 16, :])
    return y


@pl.jit
def one_after_the_other(x: X, y: pl.Out[X]):
    """Each task needs the one before it: they are short, but no blocks of one launch."""
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="first"):
        y[0:16, :] = x[0:16, :]
    for r in pl.range(1, ROWS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="next"):  # one after the other
            y[r * 16 : r * 16 + 16, :] = pl.add(y[r * 16 - 16 : r * 16, :], x[r * 16 : r * 16 + 16, :])
    return y


@pl.jit
def split_k(
    a: pl.Tensor[[16, 32 * 128], pl.BF16],
    b: pl.Tensor[[32 * 128, 128], pl.BF16],
    c: pl.InOut[pl.Tensor[[16, 128], pl.FP32]],
):
    """Parts that only add to the same tile can be blocks, for blocks may add too."""
    with pl.manual_scope():
        for k in pl.parallel(0, 32 * 128, 128):  # split K
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="part"):
                part = pl.matmul(a[:, k : k + 128], b[k : k + 128, :], out_dtype=pl.FP32)
                c = pl.assemble(c, part, [0, 0], atomic=pl.AtomicType.Add)
    return c


@pl.jit
def long_ones(x: pl.Tensor[[8 * 1024, 1024], pl.FP32], y: pl.Out[pl.Tensor[[8 * 1024, 1024], pl.FP32]]):
    """8 tasks of 4 MB each way: 0.2 ms at one vector core's 48th of 1.76 TB/s."""
    for r in pl.parallel(8):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
            for s in pl.pipeline(0, 1024, 16, stage=2):
                row = r * 1024 + s
                y[row : row + 16, :] = pl.exp(x[row : row + 16, :])
    return y


def gemm(tiles: int, beside: int = 0) -> Any:
    """[16, 4096] x [4096, tiles * 256], a block per tile, and another product that waits for nothing."""

    @pl.jit
    def program(
        a: pl.Tensor[[16, 4096], pl.BF16],
        b: pl.Tensor[[4096, tiles * 256], pl.BF16],
        c: pl.Out[pl.Tensor[[16, tiles * 256], pl.FP32]],
        d: pl.Out[pl.Tensor[[16, tiles * 256], pl.FP32]],
    ):
        for n in pl.spmd(tiles, name_hint="product"):  # tail
            acc = pl.matmul(a[:, 0:128], b[0:128, n * 256 : n * 256 + 256], out_dtype=pl.FP32)
            for k in pl.pipeline(128, 4096, 128, stage=2):
                acc = pl.matmul_acc(acc, a[:, k : k + 128], b[k : k + 128, n * 256 : n * 256 + 256])
            c[:, n * 256 : n * 256 + 256] = acc
        for n in pl.spmd(beside, name_hint="other"):
            acc = pl.matmul(a[:, 0:128], b[0:128, n * 256 : n * 256 + 256], out_dtype=pl.FP32)
            for k in pl.pipeline(128, 4096, 128, stage=2):
                acc = pl.matmul_acc(acc, a[:, k : k + 128], b[k : k + 128, n * 256 : n * 256 + 256])
            d[:, n * 256 : n * 256 + 256] = acc
        return c, d

    return program


def test_equal_tasks_could_be_blocks() -> None:
    finding = only(MANY, one_by_one, "# one by one")
    assert finding.waste == Waste(tasks=ROWS - 1)
    assert finding.change == "for r in pl.spmd(ROWS, name_hint='root'):"
    assert not found(SHORT, one_by_one)  # told once


def test_equal_tasks_of_nested_loops_could_be_blocks() -> None:
    finding = only(MANY, in_two_loops, "# in two loops")
    assert finding.waste == Waste(tasks=ROWS // 4 * 2 - 1)
    assert finding.change == ""  # one line does not say it


def test_split_k_parts_could_be_blocks() -> None:
    only(MANY, split_k, "# split K")


def test_short_tasks_that_wait_for_one_another() -> None:
    assert not found(MANY, one_after_the_other)
    finding = only(SHORT, one_after_the_other, "# one after the other")
    # 3 tiles of 16 KB at 1/48 of 1.27 TB/s: 1.86 us a task, 57.6 in all, which is 8 tasks of 7.5 us
    assert "about 1.9 µs" in finding.message
    assert finding.waste == Waste(tasks=ROWS - 1 - 8)
    assert finding.severity == "hint"


@pytest.mark.parametrize("entry", [one_launch, long_ones], ids=["launch", "long"])
def test_tasks_worth_their_dispatch(entry: Any) -> None:
    assert not found(MANY, entry)
    assert not found(SHORT, entry)


def test_a_tail_that_nothing_fills() -> None:
    finding = only(WAVE, gemm(26), "# tail")
    assert "take 2 waves, the last with 2: 46% of" in finding.message  # 26 of 48 places are used
    assert "24 or 48 equal blocks" in finding.remedy


@pytest.mark.parametrize(("tiles", "beside"), [(24, 0), (48, 0), (44, 0), (8, 0), (26, 20)])
def test_full_waves_and_tails_that_others_fill(tiles: int, beside: int) -> None:
    assert not found(WAVE, gemm(tiles, beside))


def test_the_tilelet_as_found() -> None:
    made = model("qwen3_32b_tilelet", "--as-found")
    file = next(iter(found(SHORT, made).values())).file
    assert found(MANY, made)[line_of(file, "for g in pl.parallel(GROUPS)")].waste == Waste(tasks=31)
    assert line_of(file, "so_far = pl.slice(down_proj") - 2 in found(SHORT, made)
