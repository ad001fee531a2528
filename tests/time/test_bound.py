"""What bounds a run: shares of all its moments, which a plain reading of the definition confirms one by one."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.time.bound import FULL, KIND_OF, LIMITS, bound_of
from npuscope.time.change_job import jittered
from npuscope.time.chip.engine import run_chip
from npuscope.time.chip.job import AIC, AIV, MIX, NONE, Job, Machine, Times
from tests.time.jobs import equal, job, machine


def limit_at(moment: float, work: Job, chip: Machine, times: Times) -> str:
    """The definition, word by word."""
    running = [n for n in range(len(work.task_of)) if times.start[n] <= moment < times.end[n]]
    shape = [work.shape[work.task_of[n]] for n in running]
    if sum(work.draws[work.block_class[n], 0] for n in running) > chip.limit * (1 + 1e-9):
        return "memory"
    if sum(kind in (AIC, MIX) for kind in shape) >= FULL * chip.clusters:
        return "cube"
    if sum({AIV: 1, MIX: 2}.get(kind, 0) for kind in shape) >= FULL * 2 * chip.clusters:
        return "vector"
    ended: dict[int, float] = {}
    blocks = [range(f, f + n) for f, n in zip(work.first_block, work.blocks, strict=True)]
    for task in range(len(work.shape)):
        producers = [p for p in range(task) if task in work.out[work.first_out[p] : work.first_out[p + 1]]]
        ended[task] = max((last_end(p, ended, work, times, blocks) for p in producers), default=0.0)
    for task, rows in enumerate(blocks):
        could = max(ended[task], times.submitted[task])
        if any(could <= moment < times.start[n] for n in rows):
            return "scheduler"
    if any(ended[task] <= moment < times.submitted[task] for task in ended):
        return "orchestrator"
    return "tail" if moment >= max(times.start, default=0.0) else "dependency"


def last_end(task: int, ended: dict[int, float], work: Job, times: Times, blocks: list[range]) -> float:
    if work.shape[task] == NONE:
        return max(ended[task], times.submitted[task])
    return max(times.end[n] for n in blocks[task])


@given(st.integers(0, 10_000))
def test_every_moment_has_one_limit(seed: int) -> None:
    random = Random(seed)
    work, chip = job(random, random.randrange(1, 12)), machine(limit=random.choice((5.0, 50.0, 500.0)))
    work = work._replace(waits_host=np.full(len(work.shape), -1))
    times, wall = run_chip(work, chip)
    found = bound_of(work, chip, times, wall)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert min(found.shares.values()) >= 0
    longest = max(found.shares, key=lambda name: found.shares[name])
    assert found.regime == (KIND_OF[longest] if len(work.block_class) else "unknown")
    assert 0 <= found.cube_busy <= 1
    assert 0 <= found.vector_busy <= 1
    # so many moments, evenly spread, tell the shares to within a few of them
    moments = (np.arange(400) + 0.5) * wall / 400
    told = [limit_at(moment, work, chip, times) for moment in moments]
    for name in LIMITS:
        assert told.count(name) / 400 == pytest.approx(found.shares[name], abs=0.06)


def run_alike(blocks: int, tasks: int, ns: float, draw: float = 0.0, submit: float = 300.0) -> str:
    """The limit of most of the time of equal cube tasks that wait for nobody, on three clusters and 50 bytes per ns."""
    count = np.full(tasks, blocks, np.int64)
    none = np.zeros(tasks, np.int64)
    slow = np.linspace(1, 16, 10)
    work = Job(
        shape=np.full(tasks, AIC, np.int64), blocks=count, first_block=np.arange(tasks) * blocks,
        block_class=np.zeros(tasks * blocks, np.int64), task_of=np.repeat(np.arange(tasks), blocks), producers=none,
        first_out=np.zeros(tasks + 1, np.int64), out=np.zeros(0, np.int64), submit=np.full(tasks, submit), early=none,
        together=none, waits_host=np.full(tasks, -1), run=ns * slow[None, :], draws=draw / slow[None, :],
    )  # fmt: skip
    times, wall = run_chip(work, machine())
    shares = bound_of(work, machine(), times, wall).shares
    return max(shares, key=lambda name: shares[name])


def test_the_bound_is_what_there_is_too_little_of() -> None:
    assert run_alike(blocks=30, tasks=1, ns=20_000) == "cube"
    assert run_alike(blocks=30, tasks=1, ns=20_000, draw=30.0) == "memory"  # three of them want 90 of 50 B/ns
    assert run_alike(blocks=1, tasks=40, ns=500, submit=20_000) == "orchestrator"
    assert run_alike(blocks=1, tasks=1, ns=90_000) == "tail"  # one block, and nothing else to do


@given(st.integers(0, 1000), st.floats(0.01, 0.3))
def test_noise_keeps_the_bytes_and_the_mean(seed: int, spread: float) -> None:
    work = job(Random(seed), 30)
    noisy = jittered(work, seed, spread)
    before, after = (one.run[one.block_class, 0] for one in (work, noisy))
    assert np.all(after > 0)
    bytes_before, bytes_after = ((one.run * one.draws)[one.block_class] for one in (work, noisy))
    np.testing.assert_allclose(bytes_after, bytes_before)
    # the factors have a mean of one; of so many blocks the mean strays by a few standard errors
    if len(before):
        strays = 5 * spread * 1.5 / np.sqrt(len(before))
        assert abs(np.mean(after / before) - 1) < strays
    assert equal(noisy, jittered(work, seed, spread))
