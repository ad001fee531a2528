"""Mistakes in tasks, launches and calls: the sentence names the op, and the user's line."""

# ruff: noqa: F841, B007, SIM117  (programs that stop before they use what they bind)

from __future__ import annotations

import numpy as np
import pytest
from tile_mistakes import Mistake, Mistakes, X, Y, says

import npuscope.tile as pl
from npuscope.tile.fault import TileError
from npuscope.tile.record.model import Mode
from npuscope.tile.run.execute import record

CORE = pl.Level.CORE_GROUP
mistakes = Mistakes()


@pl.jit.incore
def doubled(x: X, y: Y):
    return pl.store(pl.add(pl.load(x, [0, 0], [16, 32]), 1.0), [0, 0], y)


# --- planes


@mistakes("misplaced tensor op", "pl.add", "outside a task", "Put it inside")
def arithmetic_in_orchestration(x: X, y: Y):
    y = pl.add(x, x)  # here


@mistakes("misplaced tensor op", "pl.mul", "outside a task")
def an_operator_in_orchestration(x: X, y: Y):
    y = x * 2.0  # here


@mistakes("misplaced tensor op", "pl.full")
def a_constant_tile_in_orchestration(x: X, y: Y):
    t = pl.full([16, 32], dtype=pl.FP32, value=0.0)  # here


@mistakes("misplaced tensor op", "pl.create_tile")
def a_tile_in_orchestration(x: X, y: Y):
    t = pl.create_tile([16, 32], dtype=pl.FP32)  # here


@mistakes("misplaced tensor op", "pl.load")
def a_load_in_orchestration(x: X, y: Y):
    t = pl.load(x, [0, 0], [16, 32])  # here


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


@mistakes("task_dummy inside a task")
def a_dummy_in_a_task(x: X, y: Y):
    with pl.at(level=CORE):
        tid = pl.system.task_dummy(deps=[])  # here


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


@mistakes("misplaced tensor op", "pl.system.syncall")
def a_barrier_in_orchestration(x: X, y: Y):
    pl.system.syncall(core_type="mix")  # here


# --- launches and dependencies


@mistakes("pl.spmd() does not accept 'deps='", "as tid")
def deps_on_a_loop(x: X, y: Y):
    tid = pl.system.task_dummy(deps=[])
    for i in pl.spmd(16, deps=[tid]):  # here
        y[i : i + 1, :] = x[i : i + 1, :]


@mistakes("pl.spmd() does not accept 'deps='", "as tid")
def deps_without_a_name(x: X, y: Y):
    tid = pl.system.task_dummy(deps=[])
    with pl.spmd(16, deps=[tid]):  # here
        i = pl.tile.get_block_idx()
        y[i : i + 1, :] = x[i : i + 1, :]


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


# --- calls


@mistakes("pl.add() got an unexpected keyword argument 'precise'")
def a_misspelt_option(x: X, y: Y):
    with pl.at(level=CORE):
        y[:] = pl.add(x, 1.0, precise=True)  # here


@mistakes("pl.row_maximum is not supported by npuscope", "pl.row_max")
def a_name_npuscope_has_not(x: X, y: Y):
    with pl.at(level=CORE):
        y[:] = pl.row_maximum(x)  # here


@mistakes("pl.tile.reshap is not supported by npuscope", "pl.tile.reshape")
def a_tile_name_npuscope_has_not(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.tile.reshap(x, [32, 16])  # here


@mistakes("doubled() needs the argument y")
def a_kernel_without_its_output(x: X, y: Y):
    doubled(x)  # here


@mistakes("pl.max takes two scalars", "pl.maximum", "pl.row_max")
def a_scalar_op_on_tiles(x: X, y: Y):
    with pl.at(level=CORE):
        t = pl.max(x, x)  # here


@mistakes("a tensor has no truth value", "pl.read")
def a_branch_on_a_tensor(x: X, y: Y):
    if x:  # here
        pass


@mistakes("index 2 of an array of 2")
def an_array_element_that_is_not_there(x: X, y: Y):
    ids = pl.array.create(2, pl.TASK_ID)
    ids[2] = pl.system.task_dummy(deps=[])  # here


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
