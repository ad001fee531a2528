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
from npuscope.time.chip.job import BYTES, CLOSES, HEAP, RING, SLOTS, Rings, with_room, without_end
from npuscope.time.ring_sizes import RECLAIMED, SLOWER, _least, first_that, smallest_rooms
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


@given(st.integers(0, 10**6), st.integers(1, 16))
@examples(15)
def test_a_run_with_all_rings_as_small_as_is_said_is_no_slower_and_with_less_stops(seed: int, tasks: int) -> None:
    random = Random(seed)
    made = job(random, tasks)
    made = made._replace(waits_host=np.full(tasks, -1))
    made = made._replace(rings=rings(random, made, AMPLE, AMPLE))

    def wall(tried: Rings) -> float:
        end = run_chip(made._replace(rings=tried), machine())[1]
        return end if end > 0 else float("inf")

    found = smallest_rooms(made.rings, wall)
    small = without_end(made.rings)
    for (what, ring), (least, smooth) in found.items():
        assert smooth is not None
        assert least <= smooth
        small = with_room(small, what, ring, smooth)
        assert wall(with_room(without_end(made.rings), what, ring, least)) < float("inf")
        assert wall(with_room(without_end(made.rings), what, ring, least - 1)) == float("inf")
    assert wall(small) <= wall(without_end(made.rings)) * SLOWER
    assert {at: least for at, (least, _) in smallest_rooms(made.rings, None).items()} == {
        at: least for at, (least, _) in found.items()
    }


@given(st.integers(0, 10**6), st.integers(1, 300))
@examples(60)
def test_the_dependency_pool_never_locks_with_the_least_room(seed: int, tasks: int) -> None:
    """The runtime's own protocol (simpler, pto_ring_buffer.cpp): room comes back when it is short, and only if 64
    entries are done since it came back last; whatever is done meanwhile, it goes on."""
    random = Random(seed)
    made = rings(random, job(random, tasks), AMPLE, AMPLE)
    mine = np.flatnonzero(made.entry[RING] == 0)
    edges = np.array([random.randrange(6) for _ in range(made.entry.shape[1])])
    least = _least(made, 0, edges, RECLAIMED - 1)
    done = reclaimed = 0
    for number, entry in enumerate(mine.tolist()):
        task = int(np.searchsorted(made.first_entry, entry, "right")) - 1
        begun = np.searchsorted(mine, made.first_entry[task])
        could = next((n for n in range(number) if made.entry[CLOSES, mine[n]] > task), number)
        could = min(could, int(begun))  # what is submitted now cannot have been given back

        def held(needed: int, since: int) -> int:
            return int(edges[mine[since:needed]].sum())

        done = random.randint(done, max(could, done))
        while held(number + 1, reclaimed) > least:
            if done >= reclaimed + RECLAIMED:
                reclaimed = done
            elif done < could:
                done += 1
            else:
                pytest.fail("nothing more can be done, and there is no room")


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
