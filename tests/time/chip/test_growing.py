"""Rings that would deadlock by the model, though devices run such programs: the run goes on, and says so."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st
from linted import line_of, program
from tiers import examples

import npuscope.tile as pl
from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.chip.devices import Constant, Device, load
from npuscope.lower.program import Program
from npuscope.report.simulate import simulate_data
from npuscope.time.chip.engine import run_chip, run_with_room
from npuscope.time.chip.job import HEAP, SLOTS
from npuscope.time.run import Simulated, simulate
from tests.time.jobs import job, machine, rings
from tests.time.rules import check

T: Any = pl.Tensor[[16, 64], pl.FP32]


@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([3, 6, 12]), st.sampled_from([50, 150, 10**9]))
@examples(150)
def test_a_run_goes_on_with_rings_as_large_as_it_needs(seed: int, tasks: int, slots: int, heap: int) -> None:
    random = Random(seed)
    made, chip = job(random, tasks), machine()
    made = made._replace(rings=rings(random, made, slots, heap), waits_host=np.full(tasks, -1))
    times, end, grown = run_with_room(made, chip)
    assert end > 0
    room = made.rings.room.copy()
    for one in grown:
        assert one.had == room[one.what, one.ring] < one.needs
        room[one.what, one.ring] = one.needs
    check(made._replace(rings=made.rings._replace(room=room)), chip, times)
    # WHEN nobody is stuck THEN nothing is grown
    _, plain = run_chip(made, chip)
    assert (plain < 0) == bool(grown)
    event("grown" if grown else "as it was")
    if not grown:
        assert plain == end


def small(**limits: float) -> Device:
    device = load("ascend910b1")
    made = {name: Constant(value, "", "test", "guessed") for name, value in limits.items()}
    return msgspec.structs.replace(device, runtime={**device.runtime, **made})


@pl.jit
def turns(x: T, y: pl.Out[T]):
    for turn in pl.parallel(4):
        held = pl.create_tensor([16, 64], dtype=pl.FP32)
        for _ in pl.unroll(8):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="work"):  # stuck here
                held[turn : turn + 1, :] = x[turn : turn + 1, :]
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="last"):
            y[turn : turn + 1, :] = held[turn : turn + 1, :]
    return y


def simulated(**limits: float) -> Simulated:
    recording = program(turns).recording
    return simulate(Program(recording, small(**limits)))


def _prediction(run: Simulated) -> Prediction:
    one = Prediction(Request("turns.py"))
    one.__dict__["simulated"] = run
    return one


def told(run: Simulated) -> dict[str, Any]:
    found: dict[str, Any] = simulate_data(_prediction(run), full=False)
    assert [notice.message for notice in run.grave] == [one["message"] for one in found["notices"]]
    return found


def test_a_scope_of_more_tasks_than_its_ring_has_slots_runs_and_is_a_finding() -> None:
    # GIVEN turns of nine tasks and a tensor on a ring of six slots
    run = simulated(task_window=6)
    assert run.wall > 0
    (grown,) = run.grown
    assert (grown.ring, grown.what, grown.had, grown.needs) == (2, SLOTS, 6, 11)
    (finding,) = told(run)["notices"]
    assert (finding["kind"], finding["line"]) == ("ring_deadlock", line_of(__file__, "# stuck here"))
    assert finding["message"].startswith("10 tasks are submitted in one scope, 6 is one too many")
    assert "SCOPE_DEADLOCK" in finding["message"]
    assert "as if ring 2 had room for 11" in finding["message"]
    # AND so it runs as on a ring of that size
    assert run.wall == simulated(task_window=11).wall
    assert simulated(task_window=11).grown == ()


def test_a_scope_of_more_bytes_than_its_ring_has_runs_and_is_a_finding() -> None:
    run = simulated(heap=1000)
    (grown,) = run.grown
    assert (grown.ring, grown.what, grown.had, grown.needs) == (2, HEAP, 1000, 16 * 64 * 4)
    (finding,) = told(run)["notices"]
    assert finding["message"].startswith("4,096 bytes of tensors are made in one scope, its ring has 1,000")
    assert Path(finding["file"]).name == Path(__file__).name


def test_a_program_whose_rings_have_room_has_no_such_finding() -> None:
    assert told(simulated())["notices"] == []
