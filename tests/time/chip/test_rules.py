"""Every run keeps the chip's rules, and the memory is shared as it is said to be."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tiers import examples

from npuscope.time.chip.engine import run, run_chip
from npuscope.time.chip.job import ENDLESS, NONE, new_times
from npuscope.time.chip.state import FAR, PAUSED, new_state
from tests.time.jobs import built_by_host, hosted, job, machine, rings, stopping
from tests.time.plain_chip import Chip
from tests.time.rules import NEAR, check, nobody_can_go_on, speeds, stretches

SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.integers(1, 60), st.integers(1, 5), st.sampled_from([10.0, 50.0, 1e9]))
@examples(150)
def test_any_job_keeps_every_rule(seed: int, tasks: int, clusters: int, limit: float) -> None:
    made, chip = job(Random(seed), tasks), machine(clusters, limit=limit)
    times, end = run_chip(made, chip)
    assert end > 0, "somebody waits for ever"
    check(made, chip, times)
    # the run is over when the last block is seen done, or the last task that does nothing
    last = np.max(times.finish, initial=0.0)
    assert end == pytest.approx(last) if np.all(made.shape != NONE) else end >= last - NEAR


@given(SEEDS, st.integers(2, 30), st.integers(1, 5))
@examples(150)
def test_the_orchestrator_goes_on_when_what_it_reads_is_seen_done(seed: int, tasks: int, clusters: int) -> None:
    random = Random(seed)
    near = [random.randrange(max(0, n - 3), n) if n and random.random() < 0.5 else -1 for n in range(tasks)]
    made, chip = job(random, tasks)._replace(waits_host=np.array(near)), machine(clusters)
    check(made, chip, run_chip(made, chip)[0])


@given(SEEDS, st.integers(1, 30), st.integers(1, 4), st.sampled_from([10.0, 50.0]), st.sampled_from([0.0, 3e4, 3e5]))
@examples(60)
def test_blocks_that_stop_for_other_ranks_run_as_in_plain_python(
    seed: int, tasks: int, clusters: int, limit: float, wait: float
) -> None:
    random = Random(seed)
    made, chip = stopping(random, job(random, tasks), wait), machine(clusters, limit=limit)
    times, end = run_chip(made, chip)
    plain = Chip(made, chip)
    assert plain.run() == pytest.approx(end, abs=1)
    assert np.allclose(times.reached, plain.times.reached, atol=1)
    assert np.allclose(times.end, plain.times.end, atol=1)
    first, rows = made.stops.first, np.repeat(np.arange(len(times.end)), np.diff(made.stops.first))
    assert np.all(times.end[rows] >= made.stops.release - NEAR), "nobody ends before he was let go on"
    assert np.all(times.reached >= times.start[rows] - NEAR)
    inside = np.ones(len(rows), bool)
    inside[first[:-1][np.diff(first) > 0]] = False  # a stop that another one of the block comes before
    assert np.all(times.reached[inside] >= np.roll(np.maximum(times.reached, made.stops.release), 1)[inside] - NEAR)


@given(SEEDS, st.integers(5, 30), st.sampled_from([200.0, 5e3, 4e4]))
@examples(40)
def test_a_run_that_is_paused_goes_on_as_if_it_had_not_been(seed: int, tasks: int, step: float) -> None:
    random = Random(seed)
    made, chip = stopping(random, job(random, tasks), 1e5), machine(2)
    whole, end = run_chip(made, chip)
    times, state = new_times(made), new_state(made, chip)
    paused, until, release = made._replace(together=made.together.copy()), step, made.stops.release.copy()
    paused = paused._replace(stops=made.stops._replace(release=np.full(len(release), FAR)))
    while (found := run(paused, chip, times, state, until)) == PAUSED:
        reached = (times.reached > 0) | (release < until)
        paused.stops.release[reached] = release[reached]  # who waits is told in time, never before
        until += step
    assert found == pytest.approx(end, abs=1)
    assert np.allclose(times.end, whole.end, atol=1)


@given(SEEDS, st.integers(1, 40), st.integers(1, 4), st.sampled_from([6, 12, 30]), st.sampled_from([150, 300, 10**9]))
@examples(150)
def test_rings_are_never_overfull_and_a_run_that_gets_stuck_must(
    seed: int, tasks: int, clusters: int, slots: int, heap: int
) -> None:
    random = Random(seed)
    made = job(random, tasks)
    made, chip = made._replace(rings=rings(random, made, slots, heap)), machine(clusters)
    times, end = run_chip(made, chip)
    if end < 0:
        event("stuck")
        return nobody_can_go_on(made, times)
    check(made, chip, times)
    if end > run_chip(made._replace(rings=ENDLESS), chip)[1]:
        event("the orchestrator waited for room")


@given(SEEDS, st.integers(5, 40), st.sampled_from([5.0, 30.0, 200.0]))
@examples(100)
def test_blocks_are_slowed_down_alike_and_only_as_much_as_they_must(seed: int, tasks: int, limit: float) -> None:
    made, chip = job(Random(seed), tasks), machine(4, limit=limit)
    times, _ = run_chip(made, chip)
    got_on = np.zeros(len(times.core))
    bytes_ = made.draws[made.block_class, 0] * made.run[made.block_class, 0]
    for begin, end, rows in stretches(times):
        if len(rows) == 0:
            continue
        spans = speeds(made, limit, rows)
        got_on[rows] += (end - begin) / spans
        # together they take what there is and no more; where they are slowed down, all of it, or a little less where
        # blocks that need the memory differently run together
        takes = float(np.sum(bytes_[rows] / spans))
        assert takes <= limit * (1 + 1e-9)
        if np.sum(made.draws[made.block_class[rows], 0]) > limit:
            assert takes >= 0.97 * limit
    # and every block has done its work exactly when it ends
    np.testing.assert_allclose(got_on, 1, rtol=1e-6)


@given(SEEDS)
def test_the_same_job_gives_the_same_times(seed: int) -> None:
    made = job(Random(seed), 30)
    first, again = run_chip(made, machine()), run_chip(made, machine())
    assert first[1] == again[1]
    for one, other in zip(first[0], again[0], strict=True):
        np.testing.assert_array_equal(one, other)


randoms = st.randoms(use_true_random=False)


@given(randoms, st.integers(1, 40), st.integers(1, 4), st.sampled_from([0, 6, 12, 1000]))
@examples(80, deadline=None)
def test_the_compiled_chip_agrees_with_its_twin_to_the_nanosecond(
    random: Random, tasks: int, clusters: int, slots: int
) -> None:
    made, chip = job(random, tasks), machine(clusters)
    chip = chip._replace(release=random.choice((0.0, chip.release)))
    if slots:
        made = made._replace(rings=rings(random, made, slots, heap=random.choice((150, 300, 10**9))))
    times, end = run_chip(made, chip)
    twin = Chip(made, chip)
    assert twin.run() == pytest.approx(end, abs=0.5)
    for name in ("core", "dispatch", "start", "end", "finish", "submitted", "began", "ready"):
        np.testing.assert_allclose(getattr(times, name), getattr(twin.times, name), atol=0.5, err_msg=name)


@given(randoms, st.integers(1, 40), st.integers(1, 4), st.sampled_from([0, 1]), st.integers(0, 3))
@examples(80, deadline=None)
def test_it_agrees_with_its_twin_where_the_host_builds_the_graph_too(
    random: Random, tasks: int, clusters: int, resolver: int, graphs: int
) -> None:
    made, chip = built_by_host(random, job(random, tasks), graphs), hosted(machine(clusters), resolver)
    times, end = run_chip(made, chip)
    check(made, chip, times)
    twin = Chip(made, chip)
    assert twin.run() == pytest.approx(end, abs=0.5)
    for name in ("core", "dispatch", "start", "end", "finish", "ready"):
        np.testing.assert_allclose(getattr(times, name), getattr(twin.times, name), atol=0.5, err_msg=name)


@given(randoms, st.integers(5, 40))
@examples(40, deadline=None)
def test_on_a_chip_at_half_speed_everything_takes_twice_as_long(random: Random, tasks: int) -> None:
    made, chip = job(random, tasks), machine(3)
    slower = made._replace(run=made.run * 2, draws=made.draws / 2, submit=made.submit * 2)
    costs = {
        name: getattr(chip, name) * 2
        for name in chip._fields
        if name not in ("clusters", "threads", "limit", "hosted", "resolver")
    }
    _, once = run_chip(made, chip)
    _, twice = run_chip(slower, chip._replace(limit=chip.limit / 2, **costs))
    assert twice == pytest.approx(2 * once)
