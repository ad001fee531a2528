"""The compiled chip against its twin in plain Python, and what must hold of every run."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuscope.simulate.chip.engine import run_chip
from npuscope.simulate.chip.job import MIX, NONE
from npuscope.simulate.chip.twin import Chip
from tests.simulate.jobs import job, machine, rings

randoms = st.randoms(use_true_random=False)


@given(randoms, st.integers(1, 40), st.integers(1, 4), st.sampled_from([0, 6, 12, 1000]))
@settings(max_examples=80, deadline=None)
def test_the_compiled_chip_agrees_with_its_twin_to_the_nanosecond(
    random: Random, tasks: int, clusters: int, slots: int
) -> None:
    made, chip = job(random, tasks), machine(clusters)
    if slots:
        made = made._replace(rings=rings(random, made, slots, heap=random.choice((150, 300, 10**9))))
    times, end = run_chip(made, chip)
    twin = Chip(made, chip)
    assert twin.run() == pytest.approx(end, abs=0.5)
    for name in ("core", "dispatch", "start", "end", "finish", "submitted", "began", "ready"):
        np.testing.assert_allclose(getattr(times, name), getattr(twin.times, name), atol=0.5, err_msg=name)


@given(randoms, st.integers(1, 60), st.integers(1, 5))
@settings(max_examples=80, deadline=None)
def test_nobody_starts_before_its_producers_and_no_core_runs_two_blocks(
    random: Random, tasks: int, clusters: int
) -> None:
    made, chip = job(random, tasks), machine(clusters)
    times, end = run_chip(made, chip)
    assert end > 0
    done = np.zeros(tasks)
    np.maximum.at(done, made.task_of, times.finish)
    works = made.shape != NONE
    for task in range(tasks):
        for consumer in made.out[made.first_out[task] : made.first_out[task + 1]]:
            if works[task] and works[consumer]:
                rows = made.task_of == consumer
                assert np.all(times.start[rows] >= done[task] - 1e-6)
    assert np.all(times.start >= times.dispatch - 1e-6)
    assert np.all(times.end > times.start)
    assert np.all(times.finish >= times.end + chip.fin - 1e-6)
    spans: dict[int, list[tuple[float, float]]] = {}
    for row in range(len(times.core)):
        core = int(times.core[row])
        held = [core]
        if made.shape[made.task_of[row]] == MIX:
            held += [clusters + 2 * core, clusters + 2 * core + 1]
        for one in held:
            spans.setdefault(one, []).append((times.start[row], times.end[row]))
    for mine in spans.values():
        mine.sort()
        assert all(before[1] <= after[0] + 1e-6 for before, after in pairwise(mine))


@given(randoms, st.integers(5, 40))
@settings(max_examples=40, deadline=None)
def test_together_the_blocks_take_no_more_than_the_memory_gives(random: Random, tasks: int) -> None:
    made, chip = job(random, tasks), machine(4, limit=30.0)
    times, _ = run_chip(made, chip)
    # A block's bytes are spread evenly over its run, as the engine has it between two events.
    bytes_ = made.draws[made.block_class, 0] * made.run[made.block_class, 0]
    moments = np.unique(np.concatenate([times.start, times.end]))
    total = float(np.sum(bytes_))
    assert total <= chip.limit * (moments[-1] - moments[0]) + 1e-3 if len(moments) > 1 else True


@given(randoms, st.integers(5, 40))
@settings(max_examples=40, deadline=None)
def test_on_a_chip_at_half_speed_everything_takes_twice_as_long(random: Random, tasks: int) -> None:
    made, chip = job(random, tasks), machine(3)
    slower = made._replace(run=made.run * 2, draws=made.draws / 2, submit=made.submit * 2)
    costs = {name: getattr(chip, name) * 2 for name in chip._fields if name not in ("clusters", "threads", "limit")}
    _, once = run_chip(made, chip)
    _, twice = run_chip(slower, chip._replace(limit=chip.limit / 2, **costs))
    assert twice == pytest.approx(2 * once)
