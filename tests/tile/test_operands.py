"""Operands that are not what an op takes: one program per mistake, told the same way in both modes."""

# ruff: noqa: F841  (programs that stop before they use what they bind)

from __future__ import annotations

import numpy as np
import pytest
from tile_mistakes import Mistake, Mistakes, X, Y, says

import npuscope.tile as pl
from npuscope.tile.record.model import Mode

CORE = pl.Level.CORE_GROUP
NAN = float("nan")
ARRAY = np.ones((16, 32), np.float32)
mistakes = Mistakes()


# --- whole numbers


@mistakes("pl.and works on the bits of whole numbers, not on [16, 32] FP32 and [16, 32] FP32", "Cast it")
def bits_of_fractions(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.and_(x, x)  # here


@mistakes("pl.shl works on the bits of whole numbers, not on [16, 32] FP32 and 2")
def a_shift_of_fractions(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.shls(x, 2)  # here


@mistakes("pl.or works on the bits of whole numbers, not on [16, 32] INT32 and 0.5")
def whole_numbers_or_a_half(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.ors(pl.full([16, 32], pl.INT32, 3), 0.5)  # here


@mistakes("pl.not works on the bits of whole numbers, not on [16, 32] FP32")
def the_complement_of_fractions(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.not_(x)  # here


@mistakes("an element of [16, 32] FP32: an index must be a whole number, not 1.5")
def half_an_index(x: X, y: Y):
    n = pl.read(x, [1.5, 2])  # here


@mistakes("an element of [16, 32] FP32: an index must be a whole number, not a NumPy array")
def an_array_as_an_index(x: X, y: Y):
    with pl.at(level=CORE):
        n = pl.read(pl.add(x, 1.0), ARRAY)  # here


@mistakes("pl.slice: an offset must be a whole number, not 0.5")
def half_an_offset(x: X, y: Y):
    part = pl.slice(x, [4, 4], [0.5, 0])  # here


@mistakes("pl.slice: an offset must be a whole number")
def a_loop_variable_divided_the_wrong_way(x: X, y: Y):
    with pl.at(level=CORE):
        for i in pl.range(4):
            t = pl.slice(x, [4, 32], [i / 2, 0])  # here


@mistakes("pl.load: an offset must be a whole number, not nan")
def an_offset_that_is_no_number(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.load(x, [NAN, 0], [4, 4])  # here


@mistakes("pl.store: offsets must be a list of whole numbers, not None")
def a_store_nowhere(x: X, y: Y):
    with pl.at(level=CORE):
        pl.store(pl.add(x, 1.0), None, y)  # here


@mistakes("pl.assemble: an offset must be a whole number, not '0'")
def an_offset_in_quotes(x: X, y: Y):
    with pl.at(level=CORE):
        pl.assemble(y, pl.add(x, 1.0), ["0", 0])  # here


@mistakes("pl.slice: 1 offsets [0] for 2 axes")
def too_few_offsets(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.slice(x, [4, 4], [0])  # here


@mistakes("pl.tensor.dim: an axis must be a whole number, not None")
def the_extent_of_no_axis(x: X, y: Y):
    n = pl.tensor.dim(x, None)  # here


@mistakes("pl.transpose takes a tensor or a tile, not NoneType")
def the_transpose_of_nothing(x: X, y: Y):
    t = pl.transpose(None, 0, 1)  # here


@mistakes("pl.transpose: an axis must be a whole number, not 'rows'")
def an_axis_by_name(x: X, y: Y):
    t = pl.transpose(x, "rows", 1)  # here


# --- shapes


@mistakes("a shape must be a list of whole numbers, not '16'")
def a_shape_in_quotes(x: X, y: Y):
    t = pl.create_tensor("16", dtype=pl.FP32)  # here


@mistakes("the shape [2.5, 16]: an extent must be a whole number, not 2.5")
def a_shape_with_a_half(x: X, y: Y):
    t = pl.create_tensor([2.5, 16], dtype=pl.FP32)  # here


@mistakes("a shape [1099511627776, 1099511627776] has", "more than any memory holds")
def a_tensor_larger_than_the_world(x: X, y: Y):
    t = pl.create_tensor([1 << 40, 1 << 40], dtype=pl.FP32)  # here


@mistakes("valid_shape [4] for a box [4, 4]")
def a_valid_shape_of_one_axis(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.load(x, [0, 0], [4, 4], valid_shape=[4])  # here


@mistakes("drop_dims=[1] of a box [1, 32]", "only an axis of 1 can go")
def an_axis_that_cannot_go(x: X, y: Y):
    part = pl.slice(x, [1, 32], [0, 0], drop_dims=[1])  # here


@mistakes("an extent must be a whole number, not '8'")
def a_valid_region_in_quotes(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.set_validshape(pl.add(x, 1.0), "8", 32)  # here


# --- operands that must fit


@mistakes("pl.sel: shapes [16, 32] FP32 and [8, 32] FP32 do not fit together")
def a_mask_of_half_the_rows(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.sel(x[0:8, :], x, x)  # here


@mistakes("pl.sel takes a number for FP32, not None")
def a_choice_of_nothing(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.sel(x, x, None)  # here


@mistakes("pl.lrelu: shapes [16, 32] FP32 and [8, 32] FP32 do not fit together")
def a_slope_of_half_the_rows(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.prelu(x, x[0:8, :])  # here


@mistakes("pl.matmul_bias: a bias [16, 16] FP32 for a product [16, 16] FP32")
def a_bias_of_many_rows(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.matmul_bias(x[:, 0:16], x[:, 0:16], x[:, 0:16])  # here


@mistakes("pl.fillpad_expand: [16, 32] FP32 does not grow to [8, 32]")
def a_tile_that_grows_smaller(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.fillpad_expand(x, [8, 32])  # here


@mistakes("a padding must be pl.PadValue.… or a number, not 'min'")
def a_padding_in_quotes(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.fillpad(x, pad_value="min")  # here


@mistakes("pl.tri makes rows and columns, not [16]")
def a_triangle_in_one_dimension(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.tri(0, [16])  # here


@mistakes("pl.tri: the diagonal must be a whole number, not 0.5")
def a_diagonal_between_the_columns(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.tri(0.5, [16, 16])  # here


@mistakes("pl.gather: no mask pattern 0", "1 to 7")
def a_mask_of_no_columns(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.gather(x, mask_pattern=0)  # here


@mistakes("pl.gather: mask_pattern= must be a whole number, not 1.5")
def half_a_mask(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.gather(x, mask_pattern=1.5)  # here


@mistakes("pl.gather: indices must be whole numbers, not [16, 32] FP32")
def fractions_as_indices(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.gather(x, dim=-1, index=x)  # here


@mistakes("pl.gather: indices [16, 8] INT32 for [8, 32] FP32")
def more_rows_of_indices_than_rows(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.gather(x[0:8, :], dim=-1, index=pl.full([16, 8], pl.INT32, 0))  # here


@mistakes("pl.gather: dim=0 of [16, 32] FP32", "Only the last axis")
def a_gather_along_the_rows(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.gather(x, dim=0, index=pl.full([16, 8], pl.INT32, 0))  # here


@mistakes("pl.mrgsort: exhausted= must be True or False, not [16, 32] FP32")
def a_tile_as_a_flag(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.mrgsort(pl.reshape(x, [1, 512]), x, exhausted=pl.add(x, 1.0))  # here


@mistakes("pl.mrgsort: block_len= must be a whole number, not nan")
def runs_of_no_length(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.mrgsort(pl.reshape(x, [1, 512]), block_len=NAN)  # here


# --- numbers and named constants


@mistakes("pl.add: a number of 401 digits is too large for FP32")
def a_number_beyond_fp32(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.add(x, 10**400)  # here


@mistakes("pl.add: 2147483648 is not a value of INT32")
def a_number_beyond_int32(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.add(pl.full([16, 32], pl.INT32, 0), 1 << 31)  # here


@mistakes("pl.full: 1.5 is not a value of INT32")
def a_half_in_whole_numbers(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.full([16, 32], dtype=pl.INT32, value=1.5)  # here


@mistakes("pl.expands takes a number for FP32, not None")
def nothing_spread_out(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.expands(x, None)  # here


@mistakes("pl.arange takes a number for INT32, not [16, 32] FP32")
def a_ramp_from_a_tensor(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.arange(x, [1, 32])  # here


@mistakes("pl.matmul: 'bf16' is not a data type of the language")
def a_type_in_quotes(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.matmul(x, x, b_trans=True, out_dtype="bf16")  # here


@mistakes("pl.matmul: b_trans= must be True or False, not a NumPy array")
def an_array_as_a_flag(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.matmul(x, x, b_trans=ARRAY)  # here


@mistakes("pl.move needs target_memory=pl.MemorySpace.…, not 'L1'")
def a_space_in_quotes(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.move(x, target_memory="L1")  # here


@mistakes("pl.add takes a tensor or a tile, not a NumPy array: pass it as an argument")
def an_array_from_outside(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.add(x, ARRAY)  # here


@mistakes("pl.write: 1.5 is not a value of INT32")
def a_half_written_to_whole_numbers(x: X, y: Y):
    counts = pl.create_tensor([1, 16], dtype=pl.INT32, init_value=0)
    with pl.at(level=CORE):
        pl.write(counts, [0, 0], 1.5)  # here


# --- arrays of scalars


@mistakes("pl.array.create: 'ids' is not a data type of the language")
def an_array_of_words(x: X, y: Y):
    ids = pl.array.create(2, "ids")  # here


@mistakes("pl.array.get_element takes an array of pl.array.create, not [16, 32] FP32")
def an_element_of_a_tensor(x: X, y: Y):
    first = pl.array.get_element(x, 0)  # here


@mistakes("pl.array: an index must be a whole number, not 0.5")
def half_an_element(x: X, y: Y):
    ids = pl.array.create(2, pl.INT32)
    first = ids[0.5]  # here


@mistakes("an array of task ids takes a task id, not int")
def a_number_among_task_ids(x: X, y: Y):
    ids = pl.array.create(2, pl.TASK_ID)
    ids = pl.array.update_element(ids, 0, 7)  # here


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("mistake", mistakes.rows())
def test_a_wrong_operand_is_named_at_its_line(mistake: Mistake, mode: Mode) -> None:
    says(mistake, mode)
