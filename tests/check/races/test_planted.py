"""Planted races are found at their lines, their clean twins have none, and another legal order changes the result."""

from __future__ import annotations

from typing import Any

import pytest
from planted_races import PLANTED, arguments

from npuscope.check.races import Race, races
from npuscope.check.races.replay import replay
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.tile.record.model import Mode
from npuscope.tile.run.execute import Finished, record, repeatable

DEVICE = load("910b1")
CASES = [pytest.param(make, wanted, id=name) for name, (make, wanted) in PLANTED.items()]


def found(program: Any, mode: Mode = "shapes") -> tuple[Race, ...]:
    return races(Program(record(program, *arguments(), mode=mode).recording, DEVICE))


def computed(program: Any) -> Finished:
    with repeatable():
        return record(program, *arguments())


@pytest.mark.parametrize(("make", "wanted"), CASES)
@pytest.mark.parametrize("mode", ["shapes", "values"])
def test_every_planted_race_is_found(make: Any, wanted: set[Any], mode: Mode) -> None:
    seen = {(r.hazard, r.sides[0].kernel, r.sides[1].kernel, r.buffer, r.count) for r in found(make(False), mode)}
    assert seen == wanted


@pytest.mark.parametrize(("make", "wanted"), CASES)
@pytest.mark.parametrize("mode", ["shapes", "values"])
def test_the_clean_twin_has_none(make: Any, wanted: set[Any], mode: Mode) -> None:
    assert found(make(True), mode) == ()


@pytest.mark.parametrize(("make", "wanted"), CASES)
def test_another_order_changes_the_result(make: Any, wanted: set[Any]) -> None:
    program = make(False)
    played = replay(computed(program), found(program), DEVICE)
    assert len(played.races) == len(wanted)
    assert not played.unplayed
    for race in played.races:
        assert race.changes, (race.hazard, race.unplayed)
        assert race.changes[0].output == "y"
        assert 0 < race.changes[0].elements <= race.changes[0].of == 32 * 64


@pytest.mark.parametrize(("make", "wanted"), CASES)
def test_no_order_changes_the_clean_twin(make: Any, wanted: set[Any]) -> None:
    finished = computed(make(True))
    for seed in range(5):
        played = replay(finished, (), DEVICE, seed)
        assert (played.seeded, played.unplayed) == ((), "")
