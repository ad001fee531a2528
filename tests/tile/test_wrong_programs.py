"""Programs with one mistake each: tasks where none may be, loops, Python where the language has another word."""

# ruff: noqa: F841, B007, SIM117, RUF059  (programs that stop before they use what they bind)

from __future__ import annotations

import numpy as np
import pytest
from tile_mistakes import Mistake, Mistakes, X, Y, says

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.record.model import Mode
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP
NAN = float("nan")
ARRAY = np.ones((16, 32), np.float32)
mistakes = Mistakes()


@pl.jit.incore
def doubled(x: X, y: Y):
    return pl.store(pl.add(pl.load(x, [0, 0], [16, 32]), 1.0), [0, 0], y)


@mistakes("pl.slice: an offset must be a whole number")
def a_loop_variable_divided_the_wrong_way(x: X, y: Y):
    with pl.at(level=CORE):
        for i in pl.range(4):
            t = pl.slice(x, [4, 32], [i / 2, 0])  # here


@mistakes("pl.write: 1.5 is not a value of INT32")
def a_half_written_to_whole_numbers(x: X, y: Y):
    counts = pl.create_tensor([1, 16], dtype=pl.INT32, init_value=0)
    with pl.at(level=CORE):
        pl.write(counts, [0, 0], 1.5)  # here


@mistakes("pl.add: shapes [16, 32] FP32 and [8, 32] FP32 do not fit together")
def shapes_that_do_not_fit(x: X, y: Y):
    with pl.at(level=CORE):
        y[:] = pl.add(x, x[0:8, :])  # here


@mistakes("pl.row_expand_mul: [16, 32] FP32 needs a vector [16, 1], not [1, 32] FP32")
def a_row_where_a_column_belongs(x: X, y: Y):
    with pl.at(level=CORE):
        y[:] = pl.row_expand_mul(x, x[0:1, :])  # here


@mistakes("a slice [8, 32] of [16, 32] FP32 cannot take [16, 32] FP32")
def a_slice_too_small_for_its_value(x: X, y: Y):
    with pl.at(level=CORE):
        y[0:8, :] = pl.add(x, 1.0)  # here


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


@mistakes("pl.store", "valid region of y", "shape [8, 32]")
def a_store_past_the_valid_rows_of_a_tensor(x: X, y: Y):
    part = pl.set_validshape(y, 8, 32)
    with pl.at(level=CORE):
        pl.store(pl.add(x, 1.0), [0, 0], part)  # here


@mistakes("a task inside the task outer")
def a_task_in_a_task(x: X, y: Y):
    with pl.at(level=CORE, name_hint="outer"):
        with pl.at(level=CORE):  # here
            y[:] = x


@mistakes("a task inside the task outer")
def a_launch_in_a_task(x: X, y: Y):
    with pl.at(level=CORE, name_hint="outer"):
        for i in pl.spmd(2):  # here
            y[:] = x


@mistakes("a scope inside a task")
def a_scope_in_a_task(x: X, y: Y):
    with pl.at(level=CORE):
        with pl.scope():  # here
            y[:] = x


@mistakes("a manual scope inside a manual scope")
def nested_manual_scopes(x: X, y: Y):
    with pl.manual_scope():
        with pl.manual_scope():  # here
            pass


@mistakes("an automatic scope inside a manual scope")
def an_automatic_scope_in_a_manual_one(x: X, y: Y):
    with pl.manual_scope():
        with pl.scope():  # here
            pass


@mistakes("pl.pipeline outside a task")
def a_pipeline_in_orchestration(x: X, y: Y):
    for i in pl.pipeline(4, stage=2):  # here
        pass


@mistakes("neither reads pl.tile.get_block_idx() nor calls a kernel")
def blocks_that_do_the_same(x: X, y: Y):
    with pl.spmd(4):  # here
        y[:] = pl.add(x, 1.0)


@mistakes("deps= entries must be task ids, not int")
def deps_of_a_number(x: X, y: Y):
    with pl.at(level=CORE, deps=[3]) as tid:  # here
        y[:] = x


@mistakes("deps= entries must be task ids, not Tensor")
def deps_of_a_tensor(x: X, y: Y):
    with pl.at(level=CORE, deps=[x]) as tid:  # here
        y[:] = x


@mistakes("predicate", "one element with a whole number")
def a_predicate_of_two_elements(x: X, y: Y):
    with pl.spmd(1, predicate=(x[0, 0] > x[0, 1])) as tid:  # here
        doubled(x, y)


@mistakes("no_dep_args= lists tensors, not int")
def no_dep_of_a_number(x: X, y: Y):
    with pl.at(level=CORE, no_dep_args=[3]):  # here
        y[:] = x


@mistakes("pl.add() got an unexpected keyword argument 'precise'")
def a_misspelt_option(x: X, y: Y):
    with pl.at(level=CORE):
        y[:] = pl.add(x, 1.0, precise=True)  # here


@mistakes("pl.row_maximum is not supported by npuscope", "pl.row_max")
def a_name_npuscope_has_not(x: X, y: Y):
    with pl.at(level=CORE):
        y[:] = pl.row_maximum(x)  # here


@mistakes("a tensor has no truth value", "pl.read")
def a_branch_on_a_tensor(x: X, y: Y):
    if x:  # here
        pass


@mistakes("index 2 of an array of 2")
def an_array_element_that_is_not_there(x: X, y: Y):
    ids = pl.array.create(2, pl.TASK_ID)
    ids[2] = pl.system.task_dummy(deps=[])  # here


@mistakes("pl.pipeline needs stage= of at least 1, not None")
def a_pipeline_without_a_stage(x: X, y: Y):
    with pl.at(level=CORE):
        for i in pl.pipeline(4):  # here
            pass


@mistakes("pl.unroll needs bounds known when the program is read", "n is a run-time value")
def an_unrolled_loop_of_unknown_length(x: X, y: Y):
    n = pl.read(x, [0, 0])
    for i in pl.unroll(n):  # here
        pass


@mistakes("pl.unroll needs bounds known when the program is read", "i is a run-time value")
def an_unrolled_loop_as_long_as_a_loop_variable(x: X, y: Y):
    for i in pl.range(4):
        for j in pl.unroll(i + 1):  # here
            pass


@mistakes("pl.unroll carries no values")
def an_unrolled_loop_that_carries(x: X, y: Y):
    with pl.at(level=CORE):
        for i, (a,) in pl.unroll(4, init_values=(x,)):  # here
            a = pl.yield_(a)


@mistakes("branches of this if yield 1 and 2 values")
def branches_of_unequal_yield(x: X, y: Y):
    with pl.at(level=CORE):
        if pl.tile.get_block_idx() == 0:  # here
            a = pl.yield_(x)
        else:
            a, b = pl.yield_(x, x)


@mistakes("pl.yield_ hands on 1 values, init_values of its pl.range 2")
def fewer_values_than_carried(x: X, y: Y):
    with pl.at(level=CORE):
        for i, (a, b) in pl.range(4, init_values=(x, x)):
            c = pl.yield_(a)  # here


@mistakes("must end with `names = pl.yield_(values)`")
def a_carrying_loop_that_yields_nothing(x: X, y: Y):
    with pl.at(level=CORE):
        for i, (a,) in pl.range(4, init_values=(x,)):  # here
            a = pl.add(a, 1.0)


@mistakes("first statement of a pl.while_ loop must be pl.cond")
def a_while_loop_without_a_condition(x: X, y: Y):
    for (n,) in pl.while_(init_values=(0,)):  # here
        n = pl.yield_(n + 1)


@mistakes("break in a pl.parallel loop", "pl.range and pl.while_")
def break_out_of_a_parallel_loop(x: X, y: Y):
    for i in pl.parallel(4):
        break  # here


@mistakes("continue in a pl.spmd loop")
def continue_in_a_launch(x: X, y: Y):
    for i in pl.spmd(4):
        continue  # here


@mistakes("return inside pl.spmd")
def return_from_a_block(x: X, y: Y):
    for i in pl.spmd(4):
        return y  # here


@mistakes("the name late is not bound here")
def a_name_that_only_the_first_block_binds(x: X, y: Y):
    for i in pl.spmd(4):
        if i == 0:
            late = x[0:1, :]
        y[i : i + 1, :] = late  # here


@mistakes("the name late is not bound here")
def a_name_that_no_block_bound(x: X, y: Y):
    for i in pl.spmd(0):
        late = x[0:1, :]
    with pl.at(level=CORE):
        y[0:1, :] = late  # here


@mistakes("pl.split_aiv(3)", "2 vector cores")
def three_lanes(x: X, y: Y):
    with pl.at(level=CORE):
        for lane in pl.split_aiv(3, mode=pl.SplitMode.NONE):  # here
            pass


@mistakes("pl.matmul of [16, 32] FP32 and [16, 32] FP32 inside a pl.split_aiv region")
def a_product_on_a_vector_lane(x: X, y: Y):
    with pl.at(level=CORE):
        for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            t = pl.matmul(x, x, b_trans=True)  # here


@mistakes("pl.add (its result is [16, 32] FP32) stands outside every pl.split_aiv region")
def vector_work_outside_the_regions(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.add(x, 1.0)  # here
        for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            y[:] = pl.mul(x, 2.0)


@mistakes("pl.exp reads a cube value, [16, 16] FP32", "pl.aiv_shard")
def a_cube_value_that_slips_in(x: X, y: Y):
    with pl.at(level=CORE):
        scores = pl.matmul(x, x, b_trans=True)
        for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            t = pl.exp(scores)  # here


@mistakes("pl.matmul reads a value of a pl.split_aiv region, [16, 32] FP32", "pl.aic_gather")
def a_vector_value_that_slips_out(x: X, y: Y):
    with pl.at(level=CORE):
        for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
            t = pl.exp(x)
        s = pl.matmul(t, x, b_trans=True)  # here


@mistakes("pl.col_sum of [16, 32] FP32 reduces the axis that pl.split_aiv halves")
def a_sum_over_the_lanes(x: X, y: Y):
    with pl.at(level=CORE):
        for lane in pl.split_aiv(2, mode=pl.SplitMode.UP_DOWN):
            t = pl.col_sum(x)  # here


@mistakes("pl.range: a bound must be a whole number, not 1.9")
def almost_two_turns(x: X, y: Y):
    for i in pl.range(1.9):  # here
        pass


@mistakes("pl.range: a bound must be a whole number, not nan")
def turns_that_are_no_number(x: X, y: Y):
    with pl.at(level=CORE):
        for i in pl.range(NAN):  # here
            pass


@mistakes("pl.range with step 0")
def turns_that_stand_still(x: X, y: Y):
    with pl.at(level=CORE):
        for i in pl.range(0, 4, 0):  # here
            pass


@mistakes("pl.range with step 0")
def turns_that_stand_still_in_orchestration(x: X, y: Y):
    for i in pl.range(0, 4, 0):  # here
        pass


@mistakes("pl.range of 1000000000000 turns")
def more_turns_than_time(x: X, y: Y):
    with pl.at(level=CORE):
        for i in pl.range(10**12):  # here
            t = pl.add(x, 1.0)


@mistakes("pl.cond: its condition must be True or False, not 'more'")
def a_condition_in_quotes(x: X, y: Y):
    for (n,) in pl.while_(init_values=(0,)):
        pl.cond("more")  # here
        n = pl.yield_(n + 1)


@mistakes("pl.spmd: the number of blocks must be a whole number, not 2.9")
def almost_three_blocks(x: X, y: Y):
    for i in pl.spmd(2.9):  # here
        y[i : i + 1, :] = x[i : i + 1, :]


@mistakes("pl.spmd with 1000000000000 blocks")
def more_blocks_than_cores(x: X, y: Y):
    for i in pl.spmd(10**12):  # here
        y[i : i + 1, :] = x[i : i + 1, :]


@mistakes("this pl.spmd was not seen as a launch", "Write pl.spmd(…) alone in its own statement")
def a_launch_under_another_name(x: X, y: Y):
    launch = pl.spmd
    for i in launch(2):  # here
        y[i : i + 1, :] = x[i : i + 1, :]


@mistakes("this pl.spmd was not seen as a launch", "alone in its own statement")
def a_launch_beside_a_scope(x: X, y: Y):
    with pl.manual_scope(), pl.spmd(2):  # here
        i = pl.tile.get_block_idx()
        y[i : i + 1, :] = x[i : i + 1, :]


@mistakes("pl.at() got an unexpected keyword argument 'unknown'")
def an_option_pl_at_has_not(x: X, y: Y):
    with pl.at(level=CORE, unknown=1):  # here
        pass


@mistakes("pl.at needs level=pl.Level.…, not 'core'")
def a_level_in_quotes(x: X, y: Y):
    with pl.at(level="core"):  # here
        pass


@mistakes("pl.at: name_hint= must be a printable string, not 5")
def a_number_for_a_name(x: X, y: Y):
    with pl.at(level=CORE, name_hint=5):  # here
        pass


@mistakes("pl.at: name_hint= must be a printable string, not 'a\\nb'")
def a_name_of_two_lines(x: X, y: Y):
    with pl.at(level=CORE, name_hint="a\nb"):  # here
        pass


@mistakes("pl.scope needs mode=pl.ScopeMode.…, not 'manual'")
def a_scope_in_quotes(x: X, y: Y):
    with pl.scope(mode="manual"):  # here
        pass


@mistakes("Python cannot walk over a tensor", "pl.range")
def a_loop_over_a_tensor(x: X, y: Y):
    for row in x:  # here
        pass


@mistakes("nothing can be deleted from a tensor")
def rows_deleted(x: X, y: Y):
    del x[0:1]  # here


@mistakes("Python cannot compare a tensor", "pl.cmp")
def equal_tensors(x: X, y: Y):
    if x == y:  # here
        pass


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("mistake", mistakes.rows())
def test_a_mistake_is_named_at_its_line(mistake: Mistake, mode: Mode) -> None:
    says(mistake, mode)


@pl.jit.incore
def backwards(x: X, y: Y):
    return pl.store(pl.load(y, [0, 0], [16, 32]), [0, 0], x)  # line of the kernel


@pl.jit
def calls_backwards(x: X, y: Y):
    backwards(x, y)
    return y


@pytest.mark.parametrize("mode", ["values", "shapes"])
def test_a_kernel_cannot_write_to_its_input(mode: Mode) -> None:
    x = np.ones((16, 32), np.float32)
    with pytest.raises(TileError, match=r"pl.store writes to x \[16, 32\] FP32, an input of the kernel backwards"):
        record(calls_backwards, x, np.zeros_like(x), mode=mode)


@pl.jit
def forgets(x: X, y: Y, z: Y):
    with pl.at(level=CORE):
        x[:] = pl.add(x, 1.0)
        y[:] = x
    return y


def test_an_entry_that_forgets_an_output_or_writes_an_input_is_a_finding() -> None:
    """PyPTO compiles both: what is written to an input stays on the chip."""
    x = np.ones((16, 32), np.float32)
    findings = [f.message for f in record(forgets, x, np.zeros_like(x), np.zeros_like(x)).recording.notices]
    assert any("writes to x [16, 32] FP32, an input of the entry" in message for message in findings)
    assert any("never writes to z [16, 32], which is declared pl.Out" in message for message in findings)
    assert not any("never writes to y" in message for message in findings)


def plain(x: X, y: Y):
    pass


@pytest.mark.parametrize(
    ("decorate", "part"),
    [
        (lambda: pl.jit(pl.jit(plain)), "plain has two decorators of the language. Keep one"),
        (lambda: pl.jit.inline(pl.jit.incore(plain)), "plain has two decorators"),
        (lambda: pl.jit(type("Layer", (), {})), "Layer is a class. Write @pl.program on a class"),
        (lambda: pl.jit(5), "a decorator of the language stands on a function, not on 5"),
        (lambda: pl.jit()(5), "a decorator of the language stands on a function, not on 5"),
        (lambda: pl.program(plain), "@pl.program stands on a class, not on plain"),
        (lambda: pl.function(type="zz"), "pl.function needs type=pl.FunctionType.…, not 'zz'"),
    ],
)
def test_a_decorator_says_what_it_stands_on(decorate, part: str) -> None:
    with pytest.raises(TileError, match=rf"test_wrong_programs.py, line \d+: {part}"):
        decorate()


@pl.jit
def nested(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.add(x, 0.0)
        for i, (a,) in pl.range(2, init_values=(t,)):
            for j, (b,) in pl.range(3, init_values=(a,)):
                b = pl.yield_(pl.add(b, 1.0))
            a = pl.yield_(b)
        y[:] = a
    return y


def test_tiles_carried_through_nested_loops_need_no_comparison() -> None:
    x, y = np.zeros((16, 32), np.float32), np.zeros((16, 32), np.float32)
    nested(x, y)
    np.testing.assert_array_equal(y, 6.0)
