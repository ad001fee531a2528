"""The table of ops: complete, without doubles, and every cost is one that the device files have."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import npuscope.tile as pl
import npuscope.tile.distributed as pld
from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import load, names
from npuscope.ops import table
from npuscope.ops.spec import VECTOR, OpRole, OpSpec
from npuscope.tile.calls.functions import FUNCTIONS

TIMED = [name for name in names() if load(name).op]
SPECS = list(table.BY_NAME.values())


def places(spec: OpSpec) -> list[str]:
    return [place for place in (spec.cost, spec.with_number, spec.widening, spec.alone) if place]


@pytest.mark.parametrize("device", TIMED)
def test_every_cost_is_in_the_device_file_and_every_cost_there_is_some_op_s(device: str) -> None:
    chip = load(device)
    there = {f"op.{key}" for key in chip.op} | {f"reduce.{key}" for key in chip.reduce}
    there |= {f"timing.{key}" for key in chip.timing} | {f"core.{key}" for key in chip.core}
    wanted = {place for spec in SPECS for place in places(spec)}
    assert wanted <= there
    assert {place for place in there if place.startswith(("op.", "reduce."))} <= wanted


def test_an_op_without_a_cost_is_refused() -> None:
    with pytest.raises(NpuscopeError, match="no cost"):
        OpSpec("free_lunch", VECTOR, "custom", "Costs nothing.")


def test_two_ops_cannot_have_one_name_or_one_spelling() -> None:
    with pytest.raises(NpuscopeError, match="two ops"):
        table.add(OpSpec("add", VECTOR, "custom", "Another one.", cost="op.vadd"))
    with pytest.raises(NpuscopeError, match="means add and plus"):
        table.add(OpSpec("plus", VECTOR, "custom", "Another one.", cost="op.vadd", spellings=("adds",)))


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_every_spelling_of_an_op_can_be_called(spec: OpSpec) -> None:
    for spelling in spec.names:
        value: object = pld if spelling.startswith("pld.") else pl
        for part in spelling.removeprefix("pld.").removeprefix("pl.").split("."):
            value = getattr(value, part)
        assert callable(value)
        assert FUNCTIONS[spelling] is getattr(value, "__wrapped__", value)  # `pl.tile` has other words for parameters


def test_functions_written_by_hand_are_bound_to_spellings_that_exist() -> None:
    assert set(FUNCTIONS) <= set(table.BY_SPELLING)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
def test_an_op_is_told_in_a_sentence(spec: OpSpec) -> None:
    assert spec.doc.endswith((".", "…"))
    assert not spec.like.endswith(".")


def test_every_role_is_some_op_s() -> None:
    assert all(any(spec.is_a(role) for spec in table.BY_NAME.values()) for role in OpRole)


@pytest.mark.parametrize("text", ["row_max", "pl.row_max", "pl.tile.row_max"])
def test_an_op_is_found_by_what_people_call_it(text: str) -> None:
    assert table.find(text).name == "row_max"


def test_an_op_is_found_by_an_old_spelling() -> None:
    assert table.find("pl.tile.ci").name == "arange"
    assert table.find("system.syncall").name == "syncall"


def test_an_unknown_op_is_refused_with_the_nearest() -> None:
    with pytest.raises(NpuscopeError) as caught:
        table.find("row_maxx")
    assert "row_max" in caught.value.remedy


def test_every_option_of_an_op_changes_what_it_computes_or_is_known_not_to() -> None:
    """Arguments of hand-written functions that nobody reads are found by ruff (ARG, for src/npuscope/tile)."""
    unread = set()
    for spec in SPECS:
        read = callable(spec.numeric) and not isinstance(spec.numeric, np.ufunc)
        unread |= set(spec.options) - set(inspect.signature(spec.numeric).parameters if read and spec.numeric else ())
    assert unread <= {"tmp", "tmp_tile", "high_precision", "is_binary"}  # room to work in; values are exact anyway
