"""Every run keeps the chip's rules, and the memory is shared as it is said to be."""

from __future__ import annotations

from random import Random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from npuscope.simulate.chip.engine import run_chip
from tests.simulate.jobs import job, machine
from tests.simulate.rules import check, speeds, stretches

SEEDS = st.integers(0, 10**6)


@given(SEEDS, st.integers(1, 60), st.integers(1, 5), st.sampled_from([10.0, 50.0, 1e9]))
@settings(max_examples=300)
def test_any_job_keeps_every_rule(seed: int, tasks: int, clusters: int, limit: float) -> None:
    made, chip = job(Random(seed), tasks), machine(clusters, limit=limit)
    times, end = run_chip(made, chip)
    assert end > 0, "somebody waits for ever"
    check(made, chip, times)


@given(SEEDS, st.integers(5, 40), st.sampled_from([5.0, 30.0, 200.0]))
@settings(max_examples=100)
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
        # together they take what there is and no more; where they are slowed down, nearly all of it (a block's time
        # is a straight line between two slow-downs that were timed, so its rate is a little below that of a line)
        takes = float(np.sum(bytes_[rows] / spans))
        assert takes <= limit * (1 + 1e-9)
        if np.sum(made.draws[made.block_class[rows], 0]) > limit:
            assert takes >= 0.9 * limit
    # and every block has done its work exactly when it ends
    np.testing.assert_allclose(got_on, 1, rtol=1e-6)


@given(SEEDS)
def test_the_same_job_gives_the_same_times(seed: int) -> None:
    made = job(Random(seed), 30)
    first, again = run_chip(made, machine()), run_chip(made, machine())
    assert first[1] == again[1]
    for one, other in zip(first[0], again[0], strict=True):
        np.testing.assert_array_equal(one, other)
