"""Simulates a program: prepared once, run as often as one likes.

simulated = simulate(Program(recording, device))
simulated.wall_ns, simulated.trace
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from npuscope.check.rules import ring_deadlock
from npuscope.errors import BadInput, NpuscopeError
from npuscope.lower.program import Program
from npuscope.simulate.bound import Bound, bound_of
from npuscope.simulate.chip import engine
from npuscope.simulate.chip.engine import run_chip
from npuscope.simulate.chip.job import Job, Machine, Times
from npuscope.simulate.chip.prepare import Prepared, prepare
from npuscope.simulate.compiled import announced, is_kept
from npuscope.simulate.trace_of import trace_of
from npuscope.trace.core import Trace


@dataclass(frozen=True)
class Simulated:
    """One run on the chip's model. Times of blocks are in `times`, in nanoseconds from the first submission."""

    prepared: Prepared
    times: Times
    wall: float

    @property
    def wall_ns(self) -> int:
        return round(self.wall)

    @cached_property
    def trace(self) -> Trace:
        """The run as a real capture would have it."""
        return trace_of(self.prepared, self.times)

    @cached_property
    def bound(self) -> Bound:
        """What limits it."""
        return bound_of(self.prepared.job, self.prepared.machine, self.times, self.wall)


def simulate(program: Program) -> Simulated:
    """Lowers, times and runs a program. What does not fit on chip is refused."""
    with announced(engine.run):
        return run(prepare(program))


def run(prepared: Prepared, job: Job | None = None, machine: Machine | None = None) -> Simulated:
    """Runs what was prepared, or a changed job or machine in its place."""
    prepared = replace(prepared, job=job or prepared.job, machine=machine or prepared.machine)
    times, wall = run_chip(prepared.job, prepared.machine)
    if wall < 0:
        raise _stuck(prepared.program)
    return Simulated(prepared, times, wall)


def _stuck(program: Program) -> NpuscopeError:
    """Why nobody can go on: as a rule a scope that outgrows its ring."""
    for finding in ring_deadlock.check(program):
        return BadInput(finding.message, path=finding.file, line=finding.line, remedy=finding.fix)
    return NpuscopeError(
        f"{program.recording.program} cannot go on: the orchestrator waits for room in a ring, or for what a task "
        "writes, and nobody is at work",
        remedy="A larger ring may help: ring_heap, ring_task_window in runtime_cfg, or PTO2_RING_HEAP and so on.",
    )


def is_compiled() -> bool:
    """Whether the simulator need not be compiled first on this machine."""
    return is_kept(engine.run)
