"""How small the runtime's rings may be: the numbers are those at which runs stop, and at which they become slower."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest
from command import npuscope
from hypothesis import assume, given
from hypothesis import strategies as st
from tiers import examples

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.time.chip.engine import run_chip
from npuscope.time.chip.job import BYTES, HEAP, RING, SLOTS
from npuscope.time.ring_sizes import _least, first_that
from tests.time.jobs import job, machine, rings

BGEMM = Path(__file__).resolve().parents[2] / "benchmarks" / "runtime_pairs" / "benchmark_bgemm.py"
AMPLE = 10**9


@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([SLOTS, HEAP]), st.integers(0, 1))
@examples(120)
def test_a_run_goes_on_with_the_least_room_and_stops_with_less(seed: int, tasks: int, what: int, ring: int) -> None:
    random = Random(seed)
    made = job(random, tasks)
    made = made._replace(waits_host=np.full(tasks, -1))
    made = made._replace(rings=rings(random, made, AMPLE, AMPLE))
    size = np.ones_like(made.rings.entry[BYTES]) if what == SLOTS else made.rings.entry[BYTES]
    assume(np.any(size[made.rings.entry[RING] == ring]))
    least = _least(made.rings, ring, size) + (what == SLOTS)

    def ends(room: int) -> bool:
        rooms = made.rings.room.copy()
        rooms[what, ring] = room
        return run_chip(made._replace(rings=made.rings._replace(room=rooms)), machine())[1] > 0

    assert ends(least)
    assert not ends(least - 1)


def test_the_smallest_number_that_holds_is_found_in_few_tries() -> None:
    tried: list[int] = []

    def holds(number: int) -> bool:
        tried.append(number)
        return number >= 37

    assert first_that(holds, 5, 1000) == 37
    assert len(tried) <= 12
    assert first_that(lambda number: True, 5, 1000) == 5


def test_a_smaller_window_than_is_said_makes_the_run_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    """64 groups of a product and a sum: a scope holds an allocation and two tasks, and a slot stays empty."""
    found = {row["store"]: row for row in asked().ring_sizes.rows()}
    assert found["task_window"]["least"] == 4
    assert found["heap"]["least"] == 4 * 128 * 128 * 4  # the product of a group
    smooth = found["task_window"]["smooth"]
    assert isinstance(smooth, int)
    walls = {}
    for window in (smooth - 1, smooth, smooth + 100):
        monkeypatch.setenv("PTO2_RING_TASK_WINDOW", str(window))
        walls[window] = asked().simulated.wall
    assert walls[smooth - 1] > walls[smooth + 100] * 1.001 >= walls[smooth]


def asked(**more: str) -> Prediction:
    return Prediction(Request(str(BGEMM), ("--case", "Case1"), **more))  # type: ignore[arg-type]


def test_the_host_keeps_the_whole_graph() -> None:
    rows = {row["store"]: row for row in asked(runtime="hbg").ring_sizes.rows()}
    assert rows["task_window"]["least"] == rows["task_window"]["smooth"] == 64 * 2 + 64  # tasks, allocations
    assert rows["heap"]["least"] == 64 * 4 * 128 * 128 * 4
    assert "dep_pool" not in rows


def test_check_warns_of_a_ring_only_where_a_larger_one_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "ring-room" not in {finding.id for finding in asked().findings}
    monkeypatch.setenv("PTO2_RING_TASK_WINDOW", "16")
    (warned,) = [finding for finding in asked().findings if finding.id == "ring-room"]
    assert warned.saves_ns is not None
    assert warned.saves_ns > 0
    assert "ring_task_window" in warned.remedy
    monkeypatch.setenv("PTO2_RING_TASK_WINDOW", "120")  # it comes round, but nobody waits for it
    assert "ring-room" not in {finding.id for finding in asked().findings}


def test_a_graph_that_does_not_fit_under_hbg_is_refused_with_its_line() -> None:
    words = (BGEMM, "--runtime", "hbg", "--json", "--", "--case", "Case1")
    told = npuscope("check", *words, PTO2_RING_TASK_WINDOW="150")
    (error,) = json.loads(told.stdout)["errors"]
    assert error["id"] == "ring-deadlock"
    assert error["message"].startswith("192 tasks, allocations and recorded graphs")
    assert told.returncode == 1
    refused = npuscope("simulate", *words, PTO2_RING_TASK_WINDOW="150")
    assert (refused.returncode, error["message"] in refused.stderr) == (2, True)
