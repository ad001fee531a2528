"""Mistakes in what ops are given: the sentence has the op and the shapes, and the user's line."""

# ruff: noqa: F841  (programs that stop before they use what they bind)

from __future__ import annotations

import pytest
from tile_mistakes import Mistake, Mistakes, X, Y, says

import npuscope.tile as pl
from npuscope.tile.record.model import Mode

CORE = pl.Level.CORE_GROUP
mistakes = Mistakes()


# --- shapes and bounds


@mistakes("pl.slice", "8 to 24 of axis 0", "x of shape [16, 32]")
def a_slice_past_the_rows(x: X, y: Y):
    with pl.at(level=CORE):
        t = x[8:24, :]  # here


@mistakes("pl.load", "-16 to 0 of axis 1", "x of shape [16, 32]")
def a_load_before_the_columns(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.load(x, [0, -16], [16, 16])  # here


@mistakes("pl.slice", "30 to 34 of axis 1", "the tile of shape [16, 32]")
def a_slice_of_a_tile_past_its_columns(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.add(x, 1.0)[:, 30:34]  # here


@mistakes("pl.store", "16 to 32 of axis 0", "y of shape [16, 32]")
def a_store_past_the_rows(x: X, y: Y):
    with pl.at(level=CORE):
        pl.store(pl.add(x, 1.0), [16, 0], y)  # here


@mistakes("pl.read", "16 to 17 of axis 0", "x of shape [16, 32]")
def an_element_that_is_not_there(x: X, y: Y):
    n = pl.read(x, [16, 0])  # here


@mistakes("pl.slice: valid_shape [17, 32] is larger than the box [16, 32]")
def a_valid_shape_larger_than_its_box(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.slice(x, [16, 32], [0, 0], valid_shape=[17, 32])  # here


@mistakes("pl.reshape: [16, 32] FP32 cannot become [16, 16]", "number of elements")
def a_reshape_that_loses_elements(x: X, y: Y):
    t = pl.reshape(x, [16, 16])  # here


@mistakes("pl.reshape of a view [16, 16] FP32 of x that is not contiguous")
def a_reshape_of_columns(x: X, y: Y):
    t = pl.reshape(x[:, 0:16], [256])  # here


@mistakes("pl.add: shapes [16, 32] FP32 and [8, 32] FP32 do not fit together")
def shapes_that_do_not_fit(x: X, y: Y):
    with pl.at(level=CORE):
        y[:] = pl.add(x, x[0:8, :])  # here


@mistakes("pl.row_expand_mul: [16, 32] FP32 needs a vector [16, 1], not [1, 32] FP32")
def a_row_where_a_column_belongs(x: X, y: Y):
    with pl.at(level=CORE):
        y[:] = pl.row_expand_mul(x, x[0:1, :])  # here


@mistakes("pl.row_sum needs rows and columns, not [512] FP32")
def a_reduction_of_a_vector(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.row_sum(pl.reshape(x, [512]))  # here


@mistakes("pl.concat", "[16, 32] FP32 and [8, 32] FP32", "side by side")
def tiles_of_unequal_height_side_by_side(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.concat(x, x[0:8, :])  # here


@mistakes("pl.transpose: no axis 2 in [16, 32] FP32")
def an_axis_that_is_not_there(x: X, y: Y):
    t = pl.transpose(x, axis1=0, axis2=2)  # here


@mistakes("a slice [8, 32] of [16, 32] FP32 cannot take [16, 32] FP32")
def a_slice_too_small_for_its_value(x: X, y: Y):
    with pl.at(level=CORE):
        y[0:8, :] = pl.add(x, 1.0)  # here


@mistakes("pl.arange makes one row, not [2, 32]")
def a_ramp_of_two_rows(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.arange(0, [2, 32], dtype=pl.INT32)  # here


# --- matrix products


@mistakes("pl.matmul", "[16, 32] FP32 times [16, 32] FP32", "32 columns meet 16 rows")
def inner_extents_that_differ(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.matmul(x, x)  # here


@mistakes("pl.matmul needs matrices, not [512] FP32 and [16, 32] FP32")
def a_vector_with_a_transpose_flag(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.matmul(pl.reshape(x, [512]), x, a_trans=True)  # here


@mistakes("pl.matmul: operands [16, 32] FP32 and [16, 32] BF16 differ in type")
def operands_of_two_types(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.matmul(x, pl.cast(x, pl.BF16), b_trans=True)  # here


@mistakes("pl.matmul_acc", "accumulator is [16, 32] FP32", "product [16, 16] FP32")
def an_accumulator_of_another_shape(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.matmul_acc(pl.full([16, 32], dtype=pl.FP32, value=0.0), x, x, b_trans=True)  # here


# --- spaces and types


@mistakes("pl.load fills Vec or Mat, not Left", "pl.move")
def a_load_into_a_cube_operand(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.load(x, [0, 0], [16, 32], target_memory=pl.MemorySpace.Left)  # here


@mistakes("pl.load fills Vec or Mat, not Acc")
def a_load_into_the_accumulator(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.load(x, [0, 0], [16, 32], target_memory=pl.MemorySpace.Acc)  # here


@mistakes("pl.move", "[16, 16] FP32", "from Acc to Acc")
def accumulator_to_accumulator(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.move(pl.matmul(x, x, b_trans=True), target_memory=pl.MemorySpace.Acc)  # here


@mistakes("[16, 32] BF16 cannot be written to y [16, 32] FP32", "pl.cast")
def a_store_that_changes_the_type(x: X, y: Y):
    with pl.at(level=CORE):
        y[:] = pl.cast(x, pl.BF16)  # here


@mistakes("pl.store", "[16, 16] INT32 cannot be written to scratch [16, 16] INT8")
def an_accumulator_that_becomes_int8(x: X, y: Y):
    scratch = pl.create_tensor([16, 16], dtype=pl.INT8)
    with pl.at(level=CORE):
        a = pl.cast(x, pl.INT8, mode="trunc")
        pl.store(pl.matmul(a, a, b_trans=True), [0, 0], scratch)  # here


@mistakes("no atomic add", "[16, 32] UINT8", "FP32, FP16, BF16, INT32, INT16, INT8")
def an_atomic_add_of_bytes(x: X, y: Y):
    scratch = pl.create_tensor([16, 32], dtype=pl.UINT8, init_value=0)
    with pl.at(level=CORE):
        t = pl.full([16, 32], dtype=pl.UINT8, value=1)
        pl.assemble(scratch, t, [0, 0], atomic=pl.AtomicType.Add)  # here


@mistakes("atomic= adds to GM from inside a task")
def an_atomic_add_in_orchestration(x: X, y: Y):
    part = pl.create_tensor([16, 32], dtype=pl.FP32, init_value=0)
    y = pl.assemble(y, part, [0, 0], atomic=pl.AtomicType.Add)  # here


@mistakes("pl.cast: no rounding mode 'up'", "rint")
def an_unknown_rounding_mode(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.cast(x, pl.INT32, mode="up")  # here


@mistakes("pl.create_tensor: BF16 can start as 0 only")
def a_small_float_that_starts_as_one(x: X, y: Y):
    t = pl.create_tensor([16, 32], dtype=pl.BF16, init_value=1.0)  # here


# --- valid regions and directions


@mistakes("pl.assemble", "0 to 16 of axis 0", "valid region of the tile", "shape [8, 32]")
def a_write_past_the_valid_rows_of_a_tile(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.slice(x, [16, 32], [0, 0], valid_shape=[8, 32])
        t = pl.assemble(t, pl.add(x, 1.0), [0, 0])  # here


@mistakes("pl.write", "9 to 10 of axis 0", "valid region", "shape [8, 32]")
def an_element_past_the_valid_rows(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.slice(x, [16, 32], [0, 0], valid_shape=[8, 32])
        pl.write(t, [9, 0], 1.0)  # here


@mistakes("pl.store", "valid region of y", "shape [8, 32]")
def a_store_past_the_valid_rows_of_a_tensor(x: X, y: Y):
    part = pl.set_validshape(y, 8, 32)
    with pl.at(level=CORE):
        pl.store(pl.add(x, 1.0), [0, 0], part)  # here


@mistakes("pl.set_validshape: [17, 32] is larger than [16, 32] FP32")
def a_valid_region_larger_than_the_tile(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.set_validshape(pl.add(x, 1.0), 17, 32)  # here


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("mistake", mistakes.rows())
def test_a_mistake_is_named_at_its_line(mistake: Mistake, mode: Mode) -> None:
    says(mistake, mode)
