"""Blocks that do not all take the same time: noise on their durations, the same for the same seed.

The noise is lognormal with a mean of one, in LEVELS steps of equal chance; memory traffic stays, so rates fall as
durations grow. A model of how much a ranking depends on luck, not of any cause.
"""

from __future__ import annotations

from dataclasses import replace
from statistics import NormalDist

import numpy as np

from npuscope.time.chip.job import Job
from npuscope.time.run import Simulated, run

LEVELS = 16


def jittered(job: Job, seed: int, spread: float) -> Job:
    """The job with another duration for every block; `spread` is the standard deviation of its logarithm."""
    steps = np.array([NormalDist().inv_cdf((n + 0.5) / LEVELS) for n in range(LEVELS)])
    factors = np.exp(spread * steps)
    factors /= np.mean(factors)
    level = np.random.default_rng(seed).integers(LEVELS, size=len(job.block_class))
    return job._replace(
        block_class=job.block_class * LEVELS + level,
        run=np.repeat(job.run, LEVELS, axis=0) * np.tile(factors, len(job.run))[:, None],
        draws=np.repeat(job.draws, LEVELS, axis=0) / np.tile(factors, len(job.draws))[:, None],
    )


def with_jitter(simulated: Simulated, seed: int) -> Simulated:
    """The same program run once more, with noise."""
    prepared = simulated.prepared
    spread = prepared.program.device.timing["block_spread"].value
    return run(replace(prepared, job=jittered(prepared.job, seed, spread)))
