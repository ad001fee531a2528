"""A store past the end of its tensor is told and left out: on the chip it happens, and the program goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scripts import checked

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.record.model import Mode
from npuscope.tile.run.execute import record

MODES = pytest.mark.parametrize("mode", ["values", "shapes"])
X = np.ones((16, 32), np.float32)


@pl.jit
def over_the_end(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[40, 32], pl.FP32]]):
    for i in pl.parallel(3):
        with pl.at(level=pl.Level.CORE_GROUP):
            y = pl.assemble(y, pl.add(x, 1.0), [i * 16, 0])  # the third has room for 8 rows
    return y


@MODES
def test_what_lies_past_the_end_is_left_out_and_counted(mode: Mode) -> None:
    finished = record(over_the_end, X, np.zeros((40, 32), np.float32), mode=mode)
    [found] = finished.recording.notices
    assert (found.kind, found.count, found.bytes) == ("past_the_end", 1, 8 * 32 * 4)
    assert "pl.assemble writes past the end of y [40, 32] along axis 0" in found.message
    assert len(finished.recording.tasks) == 3
    if mode == "values":
        np.testing.assert_array_equal(finished.result, np.full((40, 32), 2))


@pl.jit
def in_a_loop(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[40, 32], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        for i in pl.range(3):
            pl.store(pl.load(x, [0, 0], [16, 32]), [i * 16, 0], y)
    return y


@MODES
def test_turns_inside_and_outside_are_told_apart(mode: Mode) -> None:
    [found] = record(in_a_loop, X, np.zeros((40, 32), np.float32), mode=mode).recording.notices
    assert (found.count, found.bytes) == (1, 8 * 32 * 4)


@pl.jit
def two_axes_into_four(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, 24, 32], pl.FP32]]):
    for b in pl.parallel(2):
        with pl.at(level=pl.Level.CORE_GROUP):
            y = pl.assemble(y, pl.add(x, 1.0), [b, 0, 8 + b * 8, 0])
    return y


@MODES
def test_a_tile_of_two_axes_goes_into_the_last_two_of_a_tensor(mode: Mode) -> None:
    finished = record(two_axes_into_four, X, np.zeros((2, 1, 24, 32), np.float32), mode=mode)
    assert [found.bytes for found in finished.recording.notices] == [8 * 32 * 4]
    if mode == "values":
        assert finished.result[0, 0, 8:].min() == finished.result[1, 0, 16:].min() == 2
        assert finished.result[0, 0, :8].max() == finished.result[1, 0, :16].max() == 0


@pl.jit
def nowhere_near(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[40, 32], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y = pl.assemble(y, pl.add(x, 1.0), [48, 0])
    return y


@MODES
def test_a_store_that_begins_outside_is_refused(mode: Mode) -> None:
    with pytest.raises(TileError, match="lie outside y"):
        record(nowhere_near, X, np.zeros((40, 32), np.float32), mode=mode)


SCRIPT = """
@pl.jit
def over(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[24, 32], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y = pl.assemble(y, pl.add(x, 1.0), [16, 0])
    return y

over(np.zeros((16, 32), np.float32), np.zeros((24, 32), np.float32))
"""


def test_a_check_calls_it_an_error(tmp_path: Path) -> None:
    [found] = checked(tmp_path, SCRIPT, select=("past-the-end",)).errors
    assert found.severity == "error"
    assert "(1,024 B)" in found.message
