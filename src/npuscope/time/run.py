"""Simulates a program: prepared once, run as often as one likes.

simulated = simulate(Program(recording, device))
simulated.wall_ns, simulated.trace
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from npuscope.base.errors import NpuscopeError
from npuscope.check.rules.safety import ERROR, EXCEEDED
from npuscope.lower.program import Program
from npuscope.tile.record.model import NO_EFFECT, PAST_THE_END, Notice
from npuscope.time.bound import Bound, bound_of
from npuscope.time.chip import engine
from npuscope.time.chip.engine import GrownRing, run_with_room
from npuscope.time.chip.job import SLOTS, Job, Machine, Times
from npuscope.time.chip.prepare import Prepared, prepare
from npuscope.time.chip.trace import trace_of
from npuscope.time.compiled import announced, switch, wait
from npuscope.trace.core import Trace

MOST_IN_PLAIN = 1500  # blocks: plain Python runs a layer of 524 in 4 s, compiling takes 15 s
RING = "ring_deadlock"  # the kind of notice that tells of a ring too small for a scope


@dataclass(frozen=True)
class Simulated:
    """One run on the chip's model. Times of blocks are in `times`, in nanoseconds from the first submission."""

    prepared: Prepared
    times: Times
    wall: float
    grown: tuple[GrownRing, ...] = ()  # rings that were made larger, for the program to go on

    @property
    def wall_ns(self) -> int:
        return round(self.wall)

    @property
    def noticed(self) -> tuple[Notice, ...]:
        """What the user should know of: what recording noticed, and rings that are too small by the runtime's rules."""
        recording = self.prepared.program.recording
        return (*recording.notices, *(_too_small(recording.tasks[one.task].site, one) for one in self.grown))

    @property
    def grave(self) -> tuple[Notice, ...]:
        """Of those what a reader of times should know."""
        return tuple(notice for notice in self.noticed if notice.kind in (PAST_THE_END, NO_EFFECT, RING))

    @cached_property
    def trace(self) -> Trace:
        """The run as a real capture would have it."""
        return trace_of(self.prepared, self.times, self.wall_ns)

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
    switch()
    if len((job or prepared.job).block_class) > MOST_IN_PLAIN:
        wait()
    prepared = replace(prepared, job=job or prepared.job, machine=machine or prepared.machine)
    times, wall, grown = run_with_room(prepared.job, prepared.machine)
    if wall < 0:
        raise NpuscopeError(
            f"{prepared.program.recording.program} cannot go on: the orchestrator waits for what a task writes that it "
            "has not submitted, and nobody is at work"
        )
    return Simulated(prepared, times, wall, grown)


def _too_small(site: int, one: GrownRing) -> Notice:
    """In the words of the rule ring-deadlock, with what was done about it."""
    name = "task_window" if one.what == SLOTS else "heap"
    told = EXCEEDED[name].format(total=one.needs - (one.what == SLOTS), limit=one.had)
    done = f"simulated as if ring {one.ring} had room for {one.needs:,}"
    return Notice(RING, site, f"{told}: by its rules the runtime stops there ({ERROR[name]}); {done}")
