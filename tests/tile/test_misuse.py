"""Python written where the language has its own word: decorators, launches, bounds, and tensors taken for lists."""

# ruff: noqa: F841, B007  (programs that stop before they use what they bind)

from __future__ import annotations

import pytest
from tile_mistakes import Mistake, Mistakes, X, Y, says

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.record.model import Mode

CORE = pl.Level.CORE_GROUP
NAN = float("nan")
mistakes = Mistakes()


# --- bounds


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


# --- launches and regions


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


@mistakes("pl.const: None is not a data type of the language")
def a_constant_without_a_type(x: X, y: Y):
    n = pl.const(3, None)  # here


# --- tensors are no lists


@mistakes("Python cannot walk over a tensor", "pl.range")
def a_loop_over_a_tensor(x: X, y: Y):
    for row in x:  # here
        pass


@mistakes("Python cannot walk over a tile")
def the_sum_of_a_tile(x: X, y: Y):
    with pl.at(level=CORE):
        t = sum(pl.add(x, 1.0))  # here


@mistakes("nothing can be deleted from a tensor")
def rows_deleted(x: X, y: Y):
    del x[0:1]  # here


@mistakes("Python cannot compare a tensor", "pl.cmp")
def equal_tensors(x: X, y: Y):
    if x == y:  # here
        pass


@mistakes("Python cannot compare a tile", "pl.cmp")
def a_tile_below_a_number(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.add(x, 1.0) < 3.0  # here


@pytest.mark.parametrize("mode", ["values", "shapes"])
@pytest.mark.parametrize("mistake", mistakes.rows())
def test_misuse_is_named_at_its_line(mistake: Mistake, mode: Mode) -> None:
    says(mistake, mode)


# --- decorators


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
    with pytest.raises(TileError, match=rf"test_misuse.py, line \d+: {part}"):
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
    import numpy as np

    x, y = np.zeros((16, 32), np.float32), np.zeros((16, 32), np.float32)
    nested(x, y)
    np.testing.assert_array_equal(y, 6.0)
