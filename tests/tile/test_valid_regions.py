"""Tiles of which only a part holds data: what narrows and fills it, what is computed and stored of it; and boxes that
run past the end of a tensor.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripts import checked

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.record.model import Mode
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP
ROWS = pl.dynamic("ROWS")
X = np.arange(16 * 32, dtype=np.float32).reshape(16, 32) - 700  # all negative: zero padding would show


def run(op, like=X, x=X):
    """y = op(x) in one task, y poisoned before."""

    @pl.jit
    def program(x: pl.Tensor, y: pl.InOut[pl.Tensor]):
        with pl.at(level=CORE):
            pl.store(op(x), [0, 0], y)
        return y

    y = np.full_like(like, -1)
    program(x, y)
    return y


def part(x, rows: int = 5, cols: int = 7):
    return pl.slice(x, [16, 32], [0, 0], valid_shape=[rows, cols])


def test_only_the_valid_region_is_stored() -> None:
    want = np.full_like(X, -1)
    want[:5, :7] = X[:5, :7]
    np.testing.assert_array_equal(run(part), want)


@pytest.mark.parametrize(
    ("pad", "number"),
    [
        (pl.PadValue.zero, 0),
        (pl.PadValue.min, -np.inf),
        (pl.PadValue.max, np.inf),
        (float("-inf"), -np.inf),
        (3.5, 3.5),
    ],
)
def test_padding_fills_the_rest_and_makes_it_valid(pad, number) -> None:
    want = np.full_like(X, number)
    want[:5, :7] = X[:5, :7]
    np.testing.assert_array_equal(run(lambda x: pl.fillpad(part(x), pad_value=pad)), want)
    sliced = run(lambda x: pl.slice(x, [16, 32], [0, 0], valid_shape=[5, 7], pad_value=pad))
    np.testing.assert_array_equal(sliced, want)


@pytest.mark.parametrize(
    ("op", "want"),
    [
        (pl.row_max, X[:5, :7].max(1, keepdims=True)),
        (pl.row_sum, X[:5, :7].sum(1, keepdims=True)),
        (pl.row_argmax, np.full((5, 1), 6)),
        (pl.col_max, X[:5, :7].max(0, keepdims=True)),
        (pl.col_sum, X[:5, :7].sum(0, keepdims=True)),
    ],
)
def test_reductions_see_the_valid_region_alone(op, want) -> None:
    rows, cols = (16, 1) if op.__name__.startswith("pl.row") else (1, 32)
    dtype = np.int32 if want.dtype.kind == "i" else np.float32
    got = run(lambda x: op(part(x)), np.zeros((rows, cols), dtype))
    np.testing.assert_array_equal(got[: want.shape[0], : want.shape[1]], want)
    assert (got == -1).sum() == got.size - want.size  # nothing else was stored


def test_a_product_sums_the_valid_columns() -> None:
    got = run(lambda x: pl.matmul(part(x), x, b_trans=True), np.zeros((16, 16), np.float32))
    np.testing.assert_allclose(got[:5], X[:5, :7] @ X[:, :7].T, rtol=1e-6)
    assert (got[5:] == -1).all()


def test_an_elementwise_op_is_valid_where_both_operands_are() -> None:
    got = run(lambda x: pl.add(part(x, 5, 9), part(x, 8, 7)))
    want = np.full_like(X, -1)
    want[:5, :7] = 2 * X[:5, :7]
    np.testing.assert_array_equal(got, want)


def test_a_mask_follows_a_transpose_a_column_and_a_cast() -> None:
    got = run(lambda x: pl.transpose(part(x), 0, 1), np.zeros((32, 16), np.float32))
    np.testing.assert_array_equal(got[:7, :5], X[:5, :7].T)
    assert (got == -1).sum() == 32 * 16 - 35
    column = run(lambda x: pl.reshape(pl.row_sum(part(x)), [1, 16]), np.zeros((1, 16), np.float32))
    np.testing.assert_array_equal(column[0, :5], X[:5, :7].sum(1))
    assert (column[0, 5:] == -1).all()
    whole = run(lambda x: pl.cast(part(x), pl.INT32), np.zeros((16, 32), np.int32))
    np.testing.assert_array_equal(whole[:5, :7], X[:5, :7])


def test_a_valid_region_can_be_declared_and_widened_again() -> None:
    got = run(lambda x: pl.set_validshape(pl.set_validshape(pl.add(x, 0.0), 3, 32), 4, 8))
    want = np.full_like(X, -1)
    want[:4, :8] = X[:4, :8]
    np.testing.assert_array_equal(got, want)


def test_a_box_past_the_edge_is_fine_where_its_valid_part_is_inside() -> None:
    """Public programs do this at their last tile."""
    got = run(lambda x: pl.slice(x, [16, 32], [12, 0], valid_shape=[4, 32]))
    np.testing.assert_array_equal(got[:4], X[12:])
    assert (got[4:] == -1).all()
    clamped = run(lambda x: pl.slice(x, [16, 32], [12, 0], clamp=True))
    np.testing.assert_array_equal(clamped, got)
    loaded = run(lambda x: pl.load(x, [12, 0], [16, 32], [4, 32]))
    np.testing.assert_array_equal(loaded, got)


def test_a_view_hands_its_valid_region_to_the_tasks_that_load_it() -> None:
    @pl.jit
    def program(x: pl.Tensor, y: pl.InOut[pl.Tensor]):
        view = pl.slice(x, [16, 32], [8, 0], valid_shape=[8, 16])
        with pl.at(level=CORE):
            y[:] = view
        return y

    y = np.full_like(X, -1)
    program(X, y)
    np.testing.assert_array_equal(y[:8, :16], X[8:, :16])
    assert (y == -1).sum() == y.size - 128


@given(st.integers(1, 16), st.integers(1, 32), st.integers(0, 15), st.integers(0, 31))
def test_a_slice_of_a_partly_valid_tile_is_valid_where_the_tile_was(rows: int, cols: int, top: int, left: int) -> None:
    box = (16 - top, 32 - left)
    got = run(lambda x: pl.slice(part(x, rows, cols), list(box), [top, left]), np.zeros(box, np.float32))
    inside = X[top:rows, left:cols]
    np.testing.assert_array_equal(got[: inside.shape[0], : inside.shape[1]], inside)
    assert (got == -1).sum() == got.size - inside.size


@given(st.integers(1, 16), st.integers(1, 32))
def test_only_the_valid_bytes_are_read(rows: int, cols: int) -> None:
    @pl.jit
    def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=CORE):
            pl.store(pl.load(x, [0, 0], [16, 32], valid_shape=[rows, cols]), [0, 0], y)
        return y

    body = record(program, X, np.zeros_like(X), mode="shapes").recording.bodies[0]
    assert [access.shape for op in body.items for access in op.accesses] == [(rows, cols)] * 2


@pl.jit
def narrow(x: pl.Tensor[[8, 8], pl.FP32], y: pl.Out[pl.Tensor[[8, 4], pl.FP32]], z: pl.Out[pl.Tensor[[8, 8], pl.FP32]]):
    with pl.at(level=CORE):
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
    with pl.at(level=CORE):
        tile = pl.add(x[0:16, 0:16], 1.0)
        pl.store(pl.set_validshape(tile, 8, 16), [0, 0], y)
    return y


@pl.jit
def run_time_rows(x: pl.Tensor[[8, 16], pl.FP32], y: pl.Out[pl.Tensor[[8, 16], pl.FP32]]):
    padded(x, y)
    return y


@pl.jit
def known_rows(x: pl.Tensor[[8, 16], pl.FP32], y: pl.Out[pl.Tensor[[8, 16], pl.FP32]]):
    with pl.at(level=CORE):
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
    with pl.at(level=CORE):
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


# --- a store past the end of its tensor: on the chip it happens, and the program goes on

MODES = pytest.mark.parametrize("mode", ["values", "shapes"])
ONES = np.ones((16, 32), np.float32)


@pl.jit
def over_the_end(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[40, 32], pl.FP32]]):
    for i in pl.parallel(3):
        with pl.at(level=CORE):
            y = pl.assemble(y, pl.add(x, 1.0), [i * 16, 0])  # the third has room for 8 rows
    return y


@MODES
def test_what_lies_past_the_end_is_left_out_and_counted(mode: Mode) -> None:
    finished = record(over_the_end, ONES, np.zeros((40, 32), np.float32), mode=mode)
    [found] = finished.recording.notices
    assert (found.kind, found.count, found.bytes) == ("past_the_end", 1, 8 * 32 * 4)
    assert "pl.assemble writes past the end of y [40, 32] along axis 0" in found.message
    assert len(finished.recording.tasks) == 3
    if mode == "values":
        np.testing.assert_array_equal(finished.result, np.full((40, 32), 2))


@pl.jit
def in_a_loop(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[40, 32], pl.FP32]]):
    with pl.at(level=CORE):
        for i in pl.range(3):
            pl.store(pl.load(x, [0, 0], [16, 32]), [i * 16, 0], y)
    return y


@MODES
def test_turns_inside_and_outside_are_told_apart(mode: Mode) -> None:
    [found] = record(in_a_loop, ONES, np.zeros((40, 32), np.float32), mode=mode).recording.notices
    assert (found.count, found.bytes) == (1, 8 * 32 * 4)


@pl.jit
def elements(x: pl.Tensor[[2, 8], pl.INT32], y: pl.Out[pl.Tensor[[2, 6], pl.INT32]]):
    for row in pl.spmd(2):
        for column in pl.range(8):
            pl.write(y, [row, column], pl.read(x, [row, column]))
    return y


@MODES
def test_an_element_past_the_end_of_its_row_is_left_out_and_counted(mode: Mode) -> None:
    x = np.arange(16, dtype=np.int32).reshape(2, 8)
    finished = record(elements, x, np.zeros((2, 6), np.int32), mode=mode)
    [found] = [one for one in finished.recording.notices if one.kind == "past_the_end"]
    assert found.message.startswith("pl.write of an element past the end of y [2, 6] along axis 1")
    if mode == "values":
        assert (found.count, found.bytes) == (4, 16)
        np.testing.assert_array_equal(finished.result, x[:, :6])


@pl.jit
def two_axes_into_four(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[2, 1, 24, 32], pl.FP32]]):
    for b in pl.parallel(2):
        with pl.at(level=CORE):
            y = pl.assemble(y, pl.add(x, 1.0), [b, 0, 8 + b * 8, 0])
    return y


@MODES
def test_a_tile_of_two_axes_goes_into_the_last_two_of_a_tensor(mode: Mode) -> None:
    finished = record(two_axes_into_four, ONES, np.zeros((2, 1, 24, 32), np.float32), mode=mode)
    assert [found.bytes for found in finished.recording.notices] == [8 * 32 * 4]
    if mode == "values":
        assert finished.result[0, 0, 8:].min() == finished.result[1, 0, 16:].min() == 2
        assert finished.result[0, 0, :8].max() == finished.result[1, 0, :16].max() == 0


@pl.jit
def nowhere_near(x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[40, 32], pl.FP32]]):
    with pl.at(level=CORE):
        y = pl.assemble(y, pl.add(x, 1.0), [48, 0])
    return y


@MODES
def test_a_store_that_begins_outside_is_refused(mode: Mode) -> None:
    with pytest.raises(TileError, match="lie outside y"):
        record(nowhere_near, ONES, np.zeros((40, 32), np.float32), mode=mode)


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
