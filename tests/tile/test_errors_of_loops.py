"""Mistakes in loops, branches and lanes: the sentence says what the language has not, and the user's line."""

# ruff: noqa: F841, B007, RUF059  (programs that stop before they use what they bind)

from __future__ import annotations

import pytest
from tile_mistakes import Mistake, Mistakes, X, Y, says

import npuscope.tile as pl
from npuscope.tile.record.model import Mode

CORE = pl.Level.CORE_GROUP
mistakes = Mistakes()


# --- loops and branches


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


# --- lanes of the vector unit


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


@mistakes("pl.aiv_shard outside a pl.split_aiv region")
def a_shard_without_lanes(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.aiv_shard(x)  # here


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("mistake", mistakes.rows())
def test_a_mistake_is_named_at_its_line(mistake: Mistake, mode: Mode) -> None:
    says(mistake, mode)
