"""Changed jobs: what is kept, what is gone, and that the chip still runs them."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from npuscope.time.change_job import LEAST, dropped, merged, pairs_of, scaled, with_pairs
from npuscope.time.chip.engine import run_chip
from npuscope.time.chip.job import BYTES, NONE
from tests.time.jobs import equal, job, machine, rings
from tests.time.plain_chip import Chip

RANDOM, TASKS = st.randoms(use_true_random=False), st.integers(2, 25)


@given(RANDOM, TASKS)
def test_the_same_edges_and_merging_nothing_change_nothing(random: Random, tasks: int) -> None:
    made = job(random, tasks)
    made = made._replace(rings=rings(random, made, slots=100, heap=1000))
    assert equal(with_pairs(made, pairs_of(made)), made)
    alone = merged(made, [])
    assert alone is not None
    assert equal(alone, made)


@given(RANDOM, st.integers(4, 30))
def test_merged_tasks_take_one_slot_and_the_tensors_of_all(random: Random, tasks: int) -> None:
    made = with_pairs(job(random, tasks), ())._replace(waits_host=np.full(tasks, -1))
    made = made._replace(rings=rings(random, made, slots=10**6, heap=10**9))
    group = sorted(random.sample(range(tasks), 3))
    fewer = merged(made, [group])
    assert fewer is not None
    before, after = made.rings, fewer.rings
    assert after.entry.shape[1] == before.entry.shape[1] - 2
    assert after.entry[BYTES].sum() == before.entry[BYTES].sum()
    assert len(after.first_entry) == tasks - 1
    # without a limit rings cost only their giving back, and the twin, which looks at them otherwise, agrees
    times, end = run_chip(fewer, machine(3))
    twin = Chip(fewer, machine(3))
    assert twin.run() == pytest.approx(end, abs=0.5)
    assert len(times.finish) == len(made.block_class)


@given(RANDOM, TASKS, st.floats(0.1, 1.0))
def test_a_class_takes_its_share_of_time_and_bytes(random: Random, tasks: int, share: float) -> None:
    made = job(random, tasks)
    changed = scaled(made, np.array([0]), share, share)
    assert np.allclose(changed.run[0], np.maximum(share * made.run[0], LEAST))
    assert np.allclose(changed.run[0] * changed.draws[0], share * made.run[0] * made.draws[0])  # bytes of a block
    assert np.array_equal(changed.run[1:], made.run[1:])
    nothing = scaled(made, np.array([0]), 0.0, 0.0)
    assert np.all(nothing.draws[0] == 0)


@examples(30, deadline=None)
@given(RANDOM, TASKS)
def test_what_is_merged_has_all_blocks_and_edges_and_comes_after_what_it_waits_for(random: Random, tasks: int) -> None:
    made = job(random, tasks)
    made = made._replace(waits_host=np.full(tasks, -1))
    groups = [[n, n + 1] for n in range(0, tasks - 1, 2) if made.shape[n] == made.shape[n + 1]]
    fewer = merged(made, groups)
    assert fewer is not None or groups  # neighbours in a chain through a third task go round; alone nothing does
    if fewer is None:
        return
    assert len(fewer.shape) == tasks - len(groups)
    assert sorted(fewer.block_class) == sorted(made.block_class)
    assert int(np.sum(fewer.blocks)) == len(fewer.task_of)
    assert all(src < dst for src, dst in pairs_of(fewer))
    within = {tuple(group) for group in groups}
    assert len(pairs_of(fewer)) <= len([pair for pair in pairs_of(made) if pair not in within])
    assert run_chip(fewer, machine())[1] > 0


def test_two_tasks_with_a_third_between_them_cannot_be_one() -> None:
    made = with_pairs(job(Random(1), 3), [(0, 1), (1, 2)])
    assert merged(made, [[0, 2]]) is None
    assert merged(made, [[0, 1]]) is not None


@examples(30, deadline=None)
@given(RANDOM, TASKS)
def test_what_is_dropped_has_no_blocks_and_still_passes_on_its_order(random: Random, tasks: int) -> None:
    made = job(random, tasks)
    gone = np.arange(0, tasks, 3)
    less = dropped(made, gone)
    assert np.all(less.shape[gone] == NONE)
    assert len(less.task_of) == int(np.sum(made.blocks)) - int(np.sum(made.blocks[gone]))
    assert pairs_of(less) == pairs_of(made)
    assert run_chip(less, machine())[1] > 0
