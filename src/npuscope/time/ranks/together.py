"""The chips of several ranks run together: a block that waits for another rank goes on when its signal is there.

Every rank's chip runs by itself (`chip/engine.py`) until a block comes to a stop: it tells another rank something, or
waits to be told. Counters live in simulated time, as the programs use them: a signal reaches its counter a latency
after it was sent, and a wait ends when its counter is what it waits for. A rank that waits runs no further than others
could reach it; one that waits for nobody runs ahead. So every order of ranks gives the same times. A chip pauses where
its own blocks may have to know: at waits, and at signals to itself. Signals to others are looked at afterwards.

Programs of one rank follow each other, `between` apart. Rank r starts r times `skew` after the first.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import NamedTuple

import numpy as np

from npuscope.base import progress
from npuscope.base.errors import NpuscopeError
from npuscope.tile.record.model import Site
from npuscope.time.chip.engine import GrownRing, run, run_with_room, with_grown
from npuscope.time.chip.job import Floats, Job, Machine, Times, new_times
from npuscope.time.chip.prepare import Peers, Prepared
from npuscope.time.chip.state import (
    AT,
    BLOCK,
    DEFERRED,
    DUE,
    FAR,
    NEXT,
    NOW,
    PASSED,
    PAUSED,
    ROWS,
    STATE,
    STOPPED,
    STUCK,
    TASK,
    State,
    new_state,
)
from npuscope.time.core.costs import link_constant
from npuscope.time.core.stream import Message

MANY = 64  # changes of a counter that are kept apart
MOST_NAMED = 4  # ranks that wait, in the sentence about a hang


class Sender(NamedTuple):
    """Who changed a counter: a task of a program of a rank, at a moment of the clock that all ranks share."""

    rank: int
    number: int
    task: int
    sent: float


class RanksHang(NpuscopeError):
    """No rank can go on."""


@dataclass(frozen=True)
class RankRun:
    """One program on one rank: when it began, by the clock that all ranks share, and its times from then on."""

    rank: int
    number: int
    prepared: Prepared  # `release` of its job's stops: when each ended, from `begin`
    begin: float
    times: Times
    wall: float
    ended_by: tuple[Sender | None, ...] = ()  # of each stop whose signal let it go on; None where it had not to wait

    @property
    def end(self) -> float:
        return self.begin + self.wall

    @property
    def waited(self) -> Floats:
        """How long each stop lasted."""
        found: Floats = np.maximum(self.prepared.job.stops.release - self.times.reached, 0.0)
        return found


def run_together(peers: Peers, jobs: Sequence[Sequence[tuple[Job, Machine]]]) -> tuple[RankRun, ...]:
    """Every program of every rank, with these jobs and machines in place of its own."""
    return _Together(peers, jobs).run()


class Counter:
    """A counter of a window: what changed it, by when that came."""

    def __init__(self) -> None:
        self.value = 0  # before the changes that are left
        self._changes: list[tuple[float, int, str, int, Sender]] = []
        self._used = 0  # changes that waits for an unknown value have used up, of those that are left

    def change(self, when: float, number: int, sign: str, value: int | None, by: Sender) -> None:
        insort(self._changes, (when, number, sign, 1 if value is None else value, by))

    def forget(self, before: float) -> None:
        """Nobody asks for an earlier moment any more."""
        gone = bisect_right(self._changes, before, key=lambda change: change[0])
        for _, _, sign, value, _ in self._changes[:gone]:
            self.value = value if sign == "set" else self.value + value
        del self._changes[:gone]
        self._used = max(self._used - gone, 0)

    def holds_from(self, since: float, message: Message) -> tuple[float, Sender | None]:
        """The first moment not before `since` at which it is what a message waits for, as far as is known; by whom."""
        if message.value is None:  # only run-time data decide: the next signal is taken to be the one
            left = self._changes[self._used : self._used + 1]
            return (max(since, left[0][0]), left[0][-1]) if left else (FAR, None)
        value, wanted, begin, last = self.value, message.value, since, None
        for when, _, sign, by, sender in self._changes:
            if when > since and _holds(message.sign, value, wanted):
                return begin, last
            value, begin, last = by if sign == "set" else value + by, max(since, when), sender
        return (begin, last) if _holds(message.sign, value, wanted) else (FAR, None)

    def use(self) -> None:
        """A wait for an unknown value has ended."""
        self._used += 1

    def __len__(self) -> int:
        return len(self._changes)


def _holds(sign: str, value: int, wanted: int) -> bool:
    return value >= wanted if sign == "ge" else value == wanted


@dataclass
class _Rank:
    """One rank on its way through its programs."""

    rank: int
    programs: Sequence[Prepared]
    jobs: Sequence[tuple[Job, Machine]]
    begin: float
    number: int = -1
    done: list[RankRun] = field(default_factory=list)
    waiting: dict[int, float] = field(default_factory=dict)  # stops that nobody has ended: when the block came to them
    over: bool = False

    def start(self, begin: float) -> None:
        """The next program; none is left where it is over."""
        self.number += 1
        self.begin, self.waiting = begin, {}
        if self.number == len(self.programs):
            self.over = True
            return
        self.prepared = self.programs[self.number]
        job, self.machine = self.jobs[self.number]
        pauses = [one.waits or one.peer in (-1, self.rank) for one in self.prepared.messages]
        stops = job.stops._replace(release=np.where(pauses, FAR, 0.0))
        self.job = job._replace(together=job.together.copy(), stops=stops)
        self.times: Times = new_times(self.job)
        self.state: State = new_state(self.job, self.machine)
        self.reported = np.zeros(len(stops.release), bool)
        self.ended_by: list[Sender | None] = [None] * len(stops.release)

    @property
    def call(self) -> int:
        place = self.prepared.program.recording.place
        return -1 if place is None else place.call

    @property
    def next(self) -> float:
        """When something happens on its chip, by the clock of all."""
        s = self.state
        orchestrator = float(s.orchestrator[0]) if s.number[NEXT] < len(self.job.shape) else FAR
        when = min(float(s.clock[DUE].min()), float(s.thread[AT].min()), orchestrator)
        return self.begin + max(float(s.moment[NOW]), when) if when < FAR else FAR

    def advance(self, until: float) -> float:
        """Runs on until a block stops, or nothing happens before this moment; what `engine.run` gives."""
        end = run(self.job, self.machine, self.times, self.state, until - self.begin if until < FAR else FAR)
        if end == STUCK and (np.any(self.state.core[STATE] == STOPPED) or self.state.number[DEFERRED]):
            end = PAUSED
        return end

    def new_stops(self) -> list[int]:
        """What blocks came to since it was last asked, in order of time."""
        new = np.flatnonzero((self.times.reached > 0) & ~self.reported)
        self.reported[new] = True
        found: list[int] = new[np.argsort(self.times.reached[new], kind="stable")].tolist()
        return found

    def finished(self, wall: float) -> RankRun:
        prepared = self.prepared
        stops = self.job.stops._replace(release=np.maximum(self.job.stops.release, self.times.reached))
        job = self.job._replace(stops=stops)
        kept = Prepared(prepared.program, prepared.classes, job, self.machine, prepared.messages)
        times = self.times._replace(loops=self.times.loops[: self.state.number[ROWS]])
        return RankRun(self.rank, self.number, kept, self.begin, times, wall, tuple(self.ended_by))


class _Together:
    def __init__(self, peers: Peers, jobs: Sequence[Sequence[tuple[Job, Machine]]]) -> None:
        self.peers, self.jobs = peers, jobs
        device = peers.prepared.program.device
        self.latency = link_constant(device, "signal_latency")
        self.ranks = [_Rank(n, *one, 0.0) for n, one in enumerate(zip(peers.ranks, jobs, strict=True))]
        self.done = 0  # programs
        self.outdated = set(range(len(jobs)))  # ranks of which something has changed since their clock was read
        self.counters: dict[tuple[int, int, int, int], Counter] = defaultdict(Counter)
        self._numbers = count()

    def run(self) -> tuple[RankRun, ...]:
        ranks = self.ranks
        for rank in ranks:
            rank.start(rank.rank * self.peers.skew)
        clocks, total = np.full(len(ranks), FAR), sum(len(rank.programs) for rank in ranks)
        while self.done < total:
            for number in self.outdated:
                rank = ranks[number]
                clocks[number] = FAR if rank.over else min(rank.next, self._soonest(rank))
            self.outdated.clear()
            first = int(clocks.argmin())
            if clocks[first] >= FAR:
                raise self._hang([rank for rank in ranks if not rank.over])
            clocks[first] = FAR
            self._step(ranks[first], min(float(clocks.min()) + self.latency, FAR))
        return tuple(one for rank in ranks for one in rank.done)

    def _soonest(self, rank: _Rank) -> float:
        """When the first wait of a rank ends by the signals that are under way."""
        return min((self._holds_from(rank, *one)[0] for one in rank.waiting.items()), default=FAR)

    def _holds_from(self, rank: _Rank, stop: int, when: float) -> tuple[float, Sender | None]:
        message = rank.prepared.messages[stop]
        return self._counter(rank, rank.rank, message).holds_from(rank.begin + when, message)

    def _counter(self, of: _Rank, rank: int, message: Message) -> Counter:
        """Of a window on a rank; windows are numbered by the call of the host function."""
        return self.counters[of.call, rank, message.window, message.cell]

    def _step(self, rank: _Rank, horizon: float) -> None:
        """One rank on to its next stop; no further than the others could reach it while it waits for them."""
        self.outdated.add(rank.rank)
        self._resolve(rank, horizon)
        end = rank.advance(horizon if rank.waiting else FAR)
        for stop in rank.new_stops():
            self._stopped(rank, stop)
        if end == STUCK:
            raise NpuscopeError(
                f"rank {rank.rank}: {rank.prepared.program.recording.program} cannot go on: the orchestrator waits for "
                "what a task writes that it has not submitted, and nobody is at work"
            )
        if end >= 0:
            rank.done.append(rank.finished(end))
            self.done += 1
            progress.report("simulating ranks", self.done, sum(len(one.programs) for one in self.ranks))
            rank.start(rank.begin + end + self.peers.between)

    def _stopped(self, rank: _Rank, stop: int) -> None:
        """A block has come to a stop: who tells goes on at once, who waits has to be told."""
        message, when = rank.prepared.messages[stop], float(rank.times.reached[stop])
        if message.waits:
            rank.waiting[stop] = when
            return
        peer, travels = message.peer, self.latency
        if peer in (-1, rank.rank):
            peer, travels = rank.rank, 0.0
            rank.job.stops.release[stop] = when
            self._let_go(rank)
        sender = Sender(rank.rank, rank.number, task_of(rank.job, stop), rank.begin + when)
        self._change(rank, peer, message, sender.sent + travels, message.sign, message.value, sender)

    def _change(
        self, of: _Rank, rank: int, message: Message, when: float, sign: str, value: int | None, by: Sender
    ) -> None:
        self._counter(of, rank, message).change(when, next(self._numbers), sign, value, by)
        self.outdated.add(rank)

    def _resolve(self, rank: _Rank, horizon: float) -> None:
        """Ends waits that the signals known by now end, if no other could come before."""
        for stop, when in sorted(rank.waiting.items(), key=lambda one: one[1]):
            holds, sender = self._holds_from(rank, stop, when)
            if holds > horizon or holds >= FAR:
                continue
            message = rank.prepared.messages[stop]
            counter = self._counter(rank, rank.rank, message)
            del rank.waiting[stop]
            rank.job.stops.release[stop] = max(holds - rank.begin, when)
            rank.ended_by[stop] = sender if holds > rank.begin + when else None
            if message.value is None:
                counter.use()
            if message.takes:
                taker = Sender(rank.rank, rank.number, task_of(rank.job, stop), holds)
                self._change(rank, rank.rank, message, holds, "add", -message.takes, taker)
            if len(counter) > MANY:
                counter.forget(min([holds, *(rank.begin + at for at in rank.waiting.values())]))

    def _let_go(self, rank: _Rank) -> None:
        """Blocks of which it is known when they go on are due then."""
        state, stops = rank.state, rank.job.stops
        for core in np.flatnonzero(state.core[STATE] == STOPPED).tolist():
            stop = _stop_of(rank.job, state, core)
            state.clock[DUE, core] = max(float(state.moment[NOW]), float(stops.release[stop]))

    def _hang(self, live: Sequence[_Rank]) -> NpuscopeError:
        """Nobody can go on: who waits for whom."""
        said: dict[str, Site] = {}
        for rank in live:
            for stop in rank.waiting:
                message = rank.prepared.messages[stop]
                counter = self._counter(rank, rank.rank, message)
                counter.forget(FAR)
                sign = ">=" if message.sign == "ge" else "=="
                site = rank.prepared.program.recording.sites[message.site]
                what = (
                    f"rank {rank.rank} ({kernel_of(rank.prepared, rank.job, stop)}, line {site.line}) waits for a "
                    f"counter {sign} {message.value} that is {counter.value}, {self._who(rank.rank, message, live)}"
                )
                said.setdefault(what, site)  # blocks of a task wait for the same
        more = f"; and {len(said) - MOST_NAMED} more" if len(said) > MOST_NAMED else ""
        first = next(iter(said.values()))
        return RanksHang(
            f"no rank can go on: {'; '.join([*said][:MOST_NAMED])}{more}",
            path=first.file,
            line=first.line,
            remedy="Somebody must notify what these ranks wait for.",
        )

    def _who(self, waiting: int, message: Message, live: Sequence[_Rank]) -> str:
        """Which ranks would still tell it."""
        place = (waiting, message.window, message.cell)
        found = [
            rank.rank
            for rank in live
            for stop, one in enumerate(rank.prepared.messages)
            if not one.waits and not rank.reported[stop] and (one.peer, one.window, one.cell) == place
        ]
        return f"which rank {found[0]} would still change" if found else "which nobody changes any more"


def _stop_of(job: Job, state: State, core: int) -> int:
    """The stop that a core's block stands at."""
    row = int(job.first_block[state.core[TASK, core]]) + int(state.core[BLOCK, core])
    return int(job.stops.first[row]) + int(state.core[PASSED, core]) - 1


def task_of(job: Job, stop: int) -> int:
    """The task whose block has a stop."""
    return int(job.task_of[int(np.searchsorted(job.stops.first, stop, "right")) - 1])


def kernel_of(prepared: Prepared, job: Job, stop: int) -> str:
    """The same task's kernel."""
    return prepared.program.recording.tasks[task_of(job, stop)].kernel


def that_goes_on(prepared: Prepared) -> tuple[Prepared, tuple[GrownRing, ...]]:
    """The program with rings as large as it takes to go on, and those that had to grow."""
    _, _, grown = run_with_room(prepared.job, prepared.machine)
    job = with_grown(prepared.job, grown)
    return Prepared(prepared.program, prepared.classes, job, prepared.machine, prepared.messages), grown
