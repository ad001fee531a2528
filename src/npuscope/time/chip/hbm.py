"""HBM shared by the blocks that run: all are slowed down alike until together they take no more than there is."""

from __future__ import annotations

from npuscope.time.chip.job import Floats, Job, Machine
from npuscope.time.chip.state import (
    DUE,
    KIND,
    RUNNING,
    SPAN,
    STATE,
    State,
)
from npuscope.time.compiled import compiled, compiled_part


@compiled
def slow_down(rates: Floats, limit: float) -> tuple[int, float, float]:
    """Between which two slow-downs the memory is: index, share towards the next, and a factor beyond the last.

    A block's time grows evenly between the two, so that of equal blocks one over the rate does; mixtures then take a
    little less than the limit, never more.
    """
    if rates[0] <= limit:
        return 0, 0.0, 1.0
    last = len(rates) - 1
    for g in range(1, last + 1):
        if rates[g] <= limit:
            return g - 1, (rates[g - 1] / limit - 1) / (rates[g - 1] / rates[g] - 1), 1.0
    return last - 1, 1.0, rates[last] / limit


@compiled_part
def set_spans(job: Job, machine: Machine, s: State, now: float) -> None:
    """How long the block on each core runs from start to end at the present slow-down, and when it is then due."""
    g, share, factor = slow_down(s.rates, machine.limit)
    if s.slow[0] == s.slow[1] == g == share == 0 and s.slow[2] == factor == 1:
        return  # nobody was or is slowed down
    s.slow[0], s.slow[1], s.slow[2] = g, share, factor
    cores, clock, run = s.core, s.clock, job.run
    for core in range(cores.shape[1]):
        if cores[STATE, core] == RUNNING:
            kind = cores[KIND, core]
            span = (run[kind, g] + share * (run[kind, g + 1] - run[kind, g])) * factor
            clock[DUE, core] = now + (clock[DUE, core] - now) / clock[SPAN, core] * span
            clock[SPAN, core] = span


@compiled_part
def add_up(job: Job, s: State) -> None:
    """The rates of all running blocks anew: sums that only grow and shrink would drift."""
    s.rates[:] = 0.0
    for core in range(s.core.shape[1]):
        if s.core[STATE, core] == RUNNING:
            kind = s.core[KIND, core]
            for n in range(len(s.rates)):
                s.rates[n] += job.draws[kind, n]
