"""Simulates a program: prepared once, run as often as one likes.

simulated = simulate(Program(recording, device))
simulated.wall_ns, simulated.trace
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256

import numpy as np

from npuscope.base.errors import NpuscopeError
from npuscope.check.rules.safety import ERROR, EXCEEDED
from npuscope.chip.devices import Device, load, names
from npuscope.lower.chip import chip_to_lower_for
from npuscope.lower.program import Program
from npuscope.tile.record.model import NO_EFFECT, PAST_THE_END, Notice
from npuscope.time.bound import Bound, after_each_other, bound_of
from npuscope.time.chip import engine
from npuscope.time.chip.engine import GrownRing, run_with_room
from npuscope.time.chip.job import SLOTS, Job, Machine, Times
from npuscope.time.chip.prepare import COSTS, Peers, Prepared, prepare
from npuscope.time.chip.trace import trace_of
from npuscope.time.compiled import announced, switch, wait
from npuscope.time.core.costs import NS
from npuscope.time.ranks.alike import changed_alike
from npuscope.time.ranks.result import RanksResult, rank_trace, ranks_trace
from npuscope.time.ranks.together import RankRun, RanksHang, run_together, that_goes_on
from npuscope.trace.core import Trace

MOST_IN_PLAIN = 1500  # blocks: plain Python runs a layer of 524 in 4 s, compiling takes 15 s
RING = "ring_deadlock"  # the kind of notice that tells of a ring too small for a scope


@dataclass(frozen=True)
class Simulated:
    """One run on the chip's model. Times of blocks are in `times`, in nanoseconds from the first submission.

    Of a rank that runs several programs `prepared` and `times` are of the longest, `wall` from the launch of the first
    until the last is done.
    """

    prepared: Prepared
    times: Times
    wall: float
    grown: tuple[GrownRing, ...] = ()  # rings that were made larger, for the program to go on
    ranks: tuple[RankRun, ...] = ()  # of all programs that ran together with it, itself included

    @property
    def wall_ns(self) -> int:
        return round(self.wall)

    @cached_property
    def programs(self) -> tuple[RankRun, ...]:
        """All that its rank runs one after another, itself included; none where there are no ranks."""
        own = self.prepared.peers.own[0] if self.prepared.peers else None
        return tuple(one for one in self.ranks if one.rank == own)

    @cached_property
    def program_wall(self) -> float:
        """Of the program alone that `times` are of."""
        own = self.prepared.peers.own if self.prepared.peers else None
        return next((one.wall for one in self.ranks if (one.rank, one.number) == own), self.wall)

    @property
    def every(self) -> list[Prepared]:
        """What its rank runs, in order."""
        return [one.prepared for one in self.programs] or [self.prepared]

    @property
    def tasks(self) -> int:
        return sum(len(one.program.recording.tasks) for one in self.every)

    @property
    def blocks(self) -> int:
        return sum(len(one.job.block_class) for one in self.every)

    @property
    def noticed(self) -> tuple[Notice, ...]:
        """What the user should know of: what recording noticed, and rings that are too small by the runtime's rules."""
        recording = self.prepared.program.recording
        return (*recording.notices, *(_too_small(recording.tasks[one.task].site, one) for one in self.grown))

    @property
    def grave(self) -> tuple[Notice, ...]:
        """Of those what a reader of times should know of the program."""
        return tuple(notice for notice in self.noticed if notice.kind in (PAST_THE_END, NO_EFFECT, RING))

    @property
    def warned(self) -> list[str]:
        """What a reader of its time should know, in words."""
        outlasts = RanksResult(self.ranks).outlasts if self.ranks else ""
        return [*(notice.message for notice in self.grave), *([outlasts] if outlasts else [])]

    @cached_property
    def trace(self) -> Trace:
        """The run as a real capture would have it."""
        if not self.programs:
            return trace_of(self.prepared, self.times, self.wall_ns)
        assert self.prepared.peers is not None
        return rank_trace(self.programs, self.programs[0].begin, self.prepared.peers.own[1])

    @cached_property
    def trace_of_ranks(self) -> Trace:
        """All ranks by one clock."""
        return ranks_trace(self.ranks)

    @cached_property
    def bound(self) -> Bound:
        """What limits it; how busy its rank is with all programs."""
        own = bound_of(self.prepared.job, self.prepared.machine, self.times, self.program_wall)
        each = [(bound_of(p.prepared.job, p.prepared.machine, p.times, p.wall), p.wall) for p in self.programs]
        return after_each_other(own, each, self.wall) if len(each) > 1 else own

    @cached_property
    def trials(self) -> Trials:
        """What it would take with changes."""
        return Trials(self)


class Trials:
    """Walls of a simulated program with another job or machine. Whoever asks for the same change again runs nothing."""

    def __init__(self, simulated: Simulated) -> None:
        self._prepared = simulated.prepared
        self._base = simulated.wall
        self._beside = simulated.wall - simulated.program_wall  # what the rank's other programs take
        self._walls = {_content(self._prepared.job, self._prepared.machine): simulated.wall}

    def wall(self, job: Job | None = None, machine: Machine | None = None) -> float:
        """In nanoseconds."""
        job, machine = job or self._prepared.job, machine or self._prepared.machine
        key = _content(job, machine)
        if key not in self._walls:
            try:
                found = run(self._prepared, job, machine)
                self._walls[key] = found.wall if found.ranks else found.wall + self._beside
            except RanksHang:  # without what orders its tasks a rank waits for ever: such a change buys nothing
                self._walls[key] = self._base
        return self._walls[key]

    def wall_ns(self, job: Job | None = None, machine: Machine | None = None) -> int:
        """To the nanosecond."""
        return round(self.wall(job, machine))


def _content(*parts: object) -> bytes:
    """Equal for jobs and machines that are: arrays by their bytes, all else as it is written."""
    found = sha256()
    for part in parts:
        if isinstance(part, tuple):
            found.update(_content(*part))
        elif isinstance(part, np.ndarray):
            found.update(repr((part.dtype.str, part.shape)).encode() + part.tobytes())
        else:
            found.update(repr(part).encode())
    return found.digest()


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
    peers = prepared.peers
    if peers is not None and len(prepared.job.block_class) == len(peers.prepared.job.block_class):
        return _run_together(
            prepared, peers
        )  # with other blocks nobody knows what the peers do: they stay as they were
    times, wall, grown = run_with_room(prepared.job, prepared.machine)
    if wall < 0:
        raise NpuscopeError(
            f"{prepared.program.recording.program} cannot go on: the orchestrator waits for what a task writes that it "
            "has not submitted, and nobody is at work"
        )
    return Simulated(prepared, times, wall, grown)


def _run_together(prepared: Prepared, peers: Peers) -> Simulated:
    """All ranks, each changed as this one is."""
    before, after = peers.prepared, prepared.job

    def changed(other: Prepared) -> Job:
        return after if other is before else changed_alike(other, before, after)

    runs = run_together(peers, [[(changed(one), prepared.machine) for one in programs] for programs in peers.ranks])
    own = next(one for one in runs if (one.rank, one.number) == peers.own)
    return Simulated(replace(prepared, job=own.prepared.job), own.times, _wall_of(runs, runs[-1].rank), ranks=runs)


def told_of(simulated: Simulated, rank: int, number: int) -> Simulated:
    """The same run of ranks, told of another of their programs; the wall stays that of the rank launched last."""
    (one,) = (one for one in simulated.ranks if (one.rank, one.number) == (rank, number))
    assert simulated.prepared.peers is not None
    peers = replace(simulated.prepared.peers, own=(rank, number))
    return replace(simulated, prepared=replace(one.prepared, peers=peers), times=one.times, grown=())


def _wall_of(runs: Sequence[RankRun], rank: int) -> float:
    """From the launch of a rank's first program until its last is done."""
    own = [one for one in runs if one.rank == rank]
    return own[-1].end - own[0].begin


def simulate_ranks(programs: Sequence[Sequence[Program]], skew: float | None = None) -> Simulated:
    """The programs of every rank together; what is told is of the rank that is launched last.

    From then on all ranks are there, so its wall is how long the program takes without the launches; and it is the same
    rank for every variant of a program, whoever waits for whom there.

    `skew`: nanoseconds from the launch of one rank to that of the next, else as the chip's file says.
    """
    runtime = programs[0][0].device.runtime
    step, base = (runtime[name].value * NS if name in runtime else 0.0 for name in ("launch_rank", "launch_program"))
    skew, between = step if skew is None else skew, base + step
    with announced(engine.run):
        ranks = tuple(tuple(prepare(program) for program in one) for one in programs)
        switch()
        if sum(len(one.job.block_class) for programs in ranks for one in programs) > MOST_IN_PLAIN:
            wait()
        with_room = [[that_goes_on(one) for one in programs] for programs in ranks]
        ranks = tuple(tuple(prepared for prepared, _ in programs) for programs in with_room)
        runs = run_together(
            Peers(ranks, (len(ranks) - 1, 0), skew, between),
            [[(one.job, one.machine) for one in programs] for programs in ranks],
        )
        shown = max((one for one in runs if one.rank == len(ranks) - 1), key=lambda one: one.wall)
        peers = Peers(ranks, (shown.rank, shown.number), skew, between)
        prepared, (_, grown) = replace(shown.prepared, peers=peers), with_room[shown.rank][shown.number]
        return Simulated(prepared, shown.times, _wall_of(runs, shown.rank), grown, runs)


def _too_small(site: int, one: GrownRing) -> Notice:
    """In the words of the rule ring-deadlock, with what was done about it."""
    name = "task_window" if one.what == SLOTS else "heap"
    text = EXCEEDED[name].format(total=one.needs - (one.what == SLOTS), limit=one.had)
    done = f"simulated as if ring {one.ring} had room for {one.needs:,}"
    return Notice(RING, site, f"{text}: by its rules the runtime stops there ({ERROR[name]}); {done}")


TIMING = (  # constants that the simulator reads beside those of lowering
    "barrier", "block_spread", "block_start", "clash_row", "clash_stride", "clash_whole", "fill_rate",
    "hand_over_to_cube", "hand_over_to_vector", "hbm_rate", "l2_crowding", "load_clash", "load_cube_hbm",
    "load_cube_l2", "load_cube_row_hbm", "load_cube_row_l2", "load_fixed", "load_groups", "load_latency",
    "load_shared", "load_vector_hbm", "load_vector_l2", "load_vector_row_hbm", "load_vector_row_l2", "scalar_access",
    "scalar_read", "scalar_step", "scalar_turn", "shared_stride", "store_fixed", "store_latency", "store_order",
    "store_rate", "store_row", "submit_argument", "submit_base", "submit_edge", "submit_manual", *COSTS,
)  # fmt: skip
CORE = ("scalar_line", "vec_repeat")
RUNTIME = ("scheduler_threads",)


def chip_to_time(name: str) -> Device:
    """A device by name or file, refused where its file has no costs of instructions and of the scheduler."""
    device = chip_to_lower_for(name)
    refused_without_times(device)
    return device


def refused_without_times(device: Device) -> None:
    if lacking := lacking_times(device):
        able = [known for known in names() if load(known).timing]
        raise NpuscopeError(
            f"the file of {device.name} has no {lacking}, so nothing can be simulated on it",
            remedy=f"Take one of {', '.join(able)}, or let the file inherit from one.",
        )


def lacking_times(device: Device) -> str:
    """The constants that a simulation needs and the device's file has not, in words; empty where it has all."""
    if not device.timing:
        return "[timing]"
    lacking = [f"timing.{name}" for name in TIMING if name not in device.timing]
    lacking += [f"core.{name}" for name in CORE if name not in device.core]
    lacking += [f"runtime.{name}" for name in RUNTIME if name not in device.runtime]
    return ", ".join(lacking)
