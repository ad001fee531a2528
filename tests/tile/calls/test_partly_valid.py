"""Tiles of which only a part holds data, and loads of which only a part exists."""

from __future__ import annotations

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.run.execute import record

ROWS = pl.dynamic("ROWS")


@pl.jit
def narrow(x: pl.Tensor[[8, 8], pl.FP32], y: pl.Out[pl.Tensor[[8, 4], pl.FP32]], z: pl.Out[pl.Tensor[[8, 8], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.set_validshape(pl.load(x, [0, 0], [8, 8]), 8, 4)
        y[0:8, 0:4] = tile
        z[0:8, 0:8] = tile
    return y


def test_a_slice_as_large_as_the_tile_or_as_its_valid_part_takes_the_valid_part() -> None:
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    y, z = np.zeros((8, 4), np.float32), np.zeros((8, 8), np.float32)
    narrow(x, y, z)
    np.testing.assert_array_equal(y, x[:, :4])
    np.testing.assert_array_equal(z, np.where(np.arange(8) < 4, x, 0))


@pl.jit.inline
def padded(x: pl.Tensor[[ROWS, 16], pl.FP32], y: pl.Tensor[[ROWS, 16], pl.FP32]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.add(x[0:16, 0:16], 1.0)
        pl.store(pl.set_validshape(tile, 8, 16), [0, 0], y)
    return y


@pl.jit
def run_time_rows(x: pl.Tensor[[8, 16], pl.FP32], y: pl.Out[pl.Tensor[[8, 16], pl.FP32]]):
    padded(x, y)
    return y


@pl.jit
def known_rows(x: pl.Tensor[[8, 16], pl.FP32], y: pl.Out[pl.Tensor[[8, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.store(pl.load(x, [0, 0], [16, 16]), [0, 0], y)
    return y


def test_rows_past_a_run_time_dimension_are_a_finding_and_poison() -> None:
    x, y = np.ones((8, 16), np.float32), np.zeros((8, 16), np.float32)
    found = record(run_time_rows, x, y)
    assert (y == 2).all()  # the rows that exist; the others were dropped
    assert [(f.kind, f.message) for f in found.recording.notices] == [
        ("out_of_bounds", "pl.slice reads rows 0 to 16 of x [8, 16]: 8 of them lie outside and hold anything")
    ]
    assert found.recording.bodies[0].items[0].accesses[0].shape == (8, 16)  # only what exists is read


@pl.jit
def view_past_the_end(x: pl.Tensor[[ROWS, 16], pl.FP32], y: pl.Out[pl.Tensor[[ROWS, 16], pl.FP32]]):
    part = pl.slice(x, [8, 16], [4, 0])
    with pl.at(level=pl.Level.CORE_GROUP):
        pl.store(pl.load(part, [0, 0], [4, 16]), [4, 0], y)
    return y


def test_a_view_may_hang_over_too_where_its_rows_are_not_read() -> None:
    x, y = np.ones((8, 16), np.float32), np.zeros((8, 16), np.float32)
    found = record(view_past_the_end, x, y)
    assert (y[4:] == 1).all()
    assert [f.kind for f in found.recording.notices] == ["out_of_bounds"]


def test_past_any_other_edge_it_is_an_error() -> None:
    x = np.ones((8, 16), np.float32)
    with pytest.raises(TileError, match=r"0 to 16 of axis 0 lie outside x of shape \[8, 16\]"):
        known_rows(x, x.copy())
