"""Who wrote an element last: the record against an array that keeps count."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import npuscope.tile as pl
from npuscope.tile.run.execute import record

ROWS, COLS = 8, 8
corner = st.integers(0, 3).map(lambda k: 2 * k)


@examples(30, deadline=None)
@given(st.lists(st.tuples(corner, corner), min_size=1, max_size=5))
def test_the_last_writer_of_every_element(boxes: list[tuple[int, int]]) -> None:
    offsets = np.array(boxes, np.int32)

    @pl.jit
    def program(at: pl.Tensor[[len(boxes), 2], pl.INT32], y: pl.InOut[pl.Tensor[[ROWS, COLS], pl.FP32]]):
        for k in pl.range(len(boxes)):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="write"):
                r = pl.read(at, [k, 0])
                c = pl.read(at, [k, 1])
                y[r : r + 2, c : c + 2] = pl.full([2, 2], dtype=pl.FP32, value=1.0)
        return y

    run = record(program, offsets, np.zeros((ROWS, COLS), np.float32))
    expected = np.full((ROWS, COLS), -1)
    for task, (r, c) in enumerate(boxes):
        expected[r : r + 2, c : c + 2] = task
    writers = [run.last_writer("y", i) for i in range(ROWS * COLS)]
    assert [-1 if w is None else w.task for w in writers] == expected.reshape(-1).tolist()


@pl.jit
def joined(x: pl.Tensor[[4, 8], pl.FP32], y: pl.Out[pl.Tensor[[8, 8], pl.FP32]]):
    part = pl.create_tensor([4, 8], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="make_part"):
        part[:, :] = pl.add(x[:, :], 1.0)
    y = pl.assemble(y, part, [2, 0])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="last_row"):
        y[5:6, :] = pl.full([1, 8], dtype=pl.FP32, value=0.0)
    return y


def test_an_element_that_came_by_an_alias_was_written_by_the_parts_writer() -> None:
    run = record(joined, np.zeros((4, 8), np.float32), np.zeros((8, 8), np.float32))
    kernels = [w.kernel if (w := run.last_writer("y", 8 * row)) else None for row in range(8)]
    assert kernels == [None, None, "make_part", "make_part", "make_part", "last_row", None, None]
    writer = run.last_writer("y", 16)
    assert str(writer) == f"assemble in make_part (task 0) at test_writers.py:{writer.site.line}"


@pl.jit
def twice(x: pl.Tensor[[4, 8], pl.FP32], y: pl.Out[pl.Tensor[[4, 8], pl.FP32]]):
    for _k in pl.range(2):
        scratch = pl.create_tensor([4, 8], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="copy"):
            scratch[:, :] = x[:, :]
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="out"):
        y[:, :] = scratch[:, :]
    return y


def test_a_name_used_again_is_told_apart() -> None:
    run = record(twice, np.zeros((4, 8), np.float32), np.zeros((4, 8), np.float32))
    assert [name for name in run.named if "scratch" in name] == ["scratch", "scratch#2"]
    assert [run.last_writer(name, 0).task for name in ("scratch", "scratch#2")] == [0, 1]
