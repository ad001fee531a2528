"""The compiled chip against its twin in plain Python. What must hold of every run is in rules.py."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

from npuscope.time.chip.engine import run_chip
from tests.time.jobs import job, machine, rings
from tests.time.plain_chip import Chip

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


@given(randoms, st.integers(5, 40))
@examples(40, deadline=None)
def test_on_a_chip_at_half_speed_everything_takes_twice_as_long(random: Random, tasks: int) -> None:
    made, chip = job(random, tasks), machine(3)
    slower = made._replace(run=made.run * 2, draws=made.draws / 2, submit=made.submit * 2)
    costs = {name: getattr(chip, name) * 2 for name in chip._fields if name not in ("clusters", "threads", "limit")}
    _, once = run_chip(made, chip)
    _, twice = run_chip(slower, chip._replace(limit=chip.limit / 2, **costs))
    assert twice == pytest.approx(2 * once)
