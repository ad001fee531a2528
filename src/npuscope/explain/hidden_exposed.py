"""Hidden and exposed: how much of a kernel set's waiting other kernels covered, and its ping-pong between units.

The set's episodes are when it is under way: while any of its slices runs, and between two of its tasks where one
waits for the other. Without edges the whole time from its first start to its last end is one episode. During
episodes, on every lane of the units it uses, time is the set's own run, other kernels' run (hidden), or idle
(exposed). The three add up.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.frozen import dataclass
from npuscope.explain.waits import Readiness, no_dependencies
from npuscope.explain.work import NEVER, Work
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, TEXT, TIME, duration, many, percent, sentence_start, short
from npuscope.trace.intervals import Intervals, Ints, inside, largest, one_group, union

UNITS = Columns(
    "report.overlap.units",
    "A unit while the kernels asked for are in progress; an object by unit. The three times sum to lanes × that time.",
    Column("unit", TEXT, "that the kernels use"),
    Column("lanes", COUNT, "of the unit"),
    Column("run_ns", TIME, "the kernels ran", scale="time", title="running"),
    Column("hidden_ns", TIME, "other kernels ran", scale="time", title="hidden by others"),
    Column("exposed_ns", TIME, "nothing ran", scale="time", title="idle, exposed"),
)


@dataclass(frozen=True)
class PingPong:
    """Time of the episodes by which unit ran the set; `switches` between one unit alone and the other alone."""

    aic_alone_ns: int
    aiv_alone_ns: int
    both_ns: int
    neither_ns: int
    switches: int
    longest_ns: int  # the longest stretch in which the two units never ran the set together
    longest_switches: int
    serial_ns: int  # one unit at a time, or none while the set is under way


@dataclass(frozen=True, repr=False)
class Overlap(Tabular):
    """How much of a kernel set's waiting other kernels covered, unit by unit, during its episodes."""

    kernels: tuple[str, ...]
    slices: int
    core_ns: int
    on_core_ns: int
    episodes: int
    episode_ns: int
    alone_ns: int  # of the on-core time, when nothing else ran on the device
    units: pl.DataFrame
    ping_pong: PingPong | None
    notes: tuple[str, ...]

    in_json = (
        "kernels", "slices", "core_ns", "on_core_ns", "episodes", "episode_ns", "alone_ns", "hidden_share",
        "ping_pong", "notes",
    )  # fmt: skip

    @property
    def hidden_share(self) -> float | None:
        """Of the set's waiting, the share that other kernels covered; None if it never waited."""
        hidden, exposed = int(self.units["hidden_ns"].sum()), int(self.units["exposed_ns"].sum())
        return hidden / (hidden + exposed) if hidden + exposed else None

    def tables(self) -> dict[str, Table]:
        return {"units": Table(UNITS, self.units)}

    def title(self) -> str:
        names = ", ".join(short(name, 40) for name in self.kernels[:6]) + (" …" if len(self.kernels) > 6 else "")
        times = f" ({self.episodes:,} times)" if self.episodes > 1 else ""
        lines = [
            f"{names}: in progress for {duration(self.episode_ns)}{times}, running on some core for "
            f"{duration(self.on_core_ns)} of it; other kernels covered {percent(self.hidden_share)} of their waiting",
        ]
        if self.ping_pong is not None:
            lines.append(ping_pong_sentence(self.ping_pong))
        return "\n".join([*lines, *self.notes])

    def as_dict(self) -> dict[str, object]:
        return {**super().as_dict(), "units": self.main_table().keyed()}


def ping_pong_sentence(pong: PingPong) -> str:
    """The alternation in words."""
    return (
        f"only AIC ran them for {duration(pong.aic_alone_ns)}, only AIV for {duration(pong.aiv_alone_ns)}, both for "
        f"{duration(pong.both_ns)}; {many(pong.switches, 'switch', 'switches')} between the two; the longest time "
        f"without both is {duration(pong.longest_ns)}, with {many(pong.longest_switches, 'switch', 'switches')}"
    )


@dataclass(frozen=True)
class Communication:
    """Collectives: on-core time, and how much of it compute covered. Nanoseconds."""

    on_core_ns: int
    hidden_ns: int
    exposed_ns: int
    compute_ns: int  # on-core time of tasks

    def __str__(self) -> str:
        return (
            f"communication {duration(self.on_core_ns)}, {duration(self.exposed_ns)} of it not covered by compute; "
            f"compute {duration(self.compute_ns)}"
        )


def communication_of(work: Work) -> Communication | None:
    """What of the communication no compute covered; None for a trace without any."""
    comm, compute = when_ran(work, "comm"), when_ran(work, "task")
    if not len(comm.start):
        return None
    hidden = shared(comm, compute)
    return Communication(comm.length, hidden, comm.length - hidden, compute.length)


@dataclass(frozen=True)
class Copies:
    """Copies and fills by engines: when any ran, and how much of it neither compute nor communication covered."""

    on_engine_ns: int
    hidden_ns: int
    exposed_ns: int

    def __str__(self) -> str:
        return f"copies {duration(self.on_engine_ns)}, {duration(self.exposed_ns)} of it not covered by other work"


def copies_of(work: Work) -> Copies | None:
    """What of the copies nothing else covered; None for a trace without any."""
    copies = when_ran(work, "copy")
    if not len(copies.start):
        return None
    hidden = shared(copies, when_ran(work, "task", "comm"))
    return Copies(copies.length, hidden, copies.length - hidden)


def when_ran(work: Work, *kinds: str) -> Intervals:
    """When any slice of some kinds ran."""
    rows = work.slices["kind"].is_in(kinds).to_numpy()
    return union(one_group(work.start[rows], work.end[rows]))


def shared(some: Intervals, others: Intervals) -> int:
    """Nanoseconds in which pieces of both were open."""
    both = inside(some, others)
    return int((both.end - both.start).sum())


def overlap_of(work: Work, ready: Readiness, chosen: NDArray[np.bool_]) -> Overlap:
    """What covered the waiting of some kernels, given by a flag per kernel."""
    ours = chosen[work.kernel]
    run = union(one_group(work.start[ours], work.end[ours]))
    episodes, notes = _episodes(work, ready, ours, run)
    others = union(one_group(work.start[~ours], work.end[~ours]))
    return Overlap(
        kernels=tuple(name for name, kept in zip(work.kernels, chosen, strict=True) if kept),
        slices=int(ours.sum()),
        core_ns=int((work.end - work.start)[ours].sum()),
        on_core_ns=run.length,
        episodes=len(episodes.start),
        episode_ns=episodes.length,
        alone_ns=run.length - shared(run, others),
        units=_units(work, ours, episodes),
        ping_pong=_ping_pong(work, ours, episodes),
        notes=notes,
    )


def _episodes(
    work: Work, ready: Readiness, ours: NDArray[np.bool_], run: Intervals
) -> tuple[Intervals, tuple[str, ...]]:
    if len(run.start) == 0:
        return run, ()
    if not ready.has_dependencies:
        note = (
            f"{sentence_start(no_dependencies(work.trace))}: they are in progress from its first start to its last end."
        )
        return one_group(run.start[:1], run.end[-1:]), (note,)
    # from the end of each of the set's tasks to the last start of a task of the set that waits for it
    tasks = max(largest(ready.task), largest(ready.src), largest(ready.dst)) + 1
    ended, began = np.full(tasks, NEVER), np.full(tasks, NEVER)
    np.maximum.at(ended, ready.task[ours], work.end[ours])
    np.maximum.at(began, ready.task[ours], work.start[ours])
    waits_from, waits_to = ended[ready.src], began[ready.dst]
    both = (waits_from != NEVER) & (waits_to != NEVER)
    return union(one_group(np.append(run.start, waits_from[both]), np.append(run.end, waits_to[both]))), ()


def _units(work: Work, ours: NDArray[np.bool_], episodes: Intervals) -> pl.DataFrame:
    rows: list[tuple[object, ...]] = []
    for unit in sorted(set(work.units[work.lane[ours]].tolist())):
        lanes = np.flatnonzero(work.units == unit)
        on_unit = np.isin(work.lane, lanes)
        group = np.repeat(lanes, len(episodes.start))
        everywhere = Intervals(group, np.tile(episodes.start, len(lanes)), np.tile(episodes.end, len(lanes)))
        run, any_run = (
            shared(everywhere, union(Intervals(work.lane[some], work.start[some], work.end[some])))
            for some in (ours & on_unit, on_unit)
        )
        rows.append((unit, len(lanes), run, any_run - run, len(lanes) * episodes.length - any_run))
    return UNITS.table(rows).frame


def _ping_pong(work: Work, ours: NDArray[np.bool_], episodes: Intervals) -> PingPong | None:
    """Sweep the set's runs on cube and vector cores; None where the capture has no such units."""
    sides = []
    for unit in ("AIC", "AIV"):
        here = ours & np.isin(work.lane, np.flatnonzero(work.units == unit))
        sides.append(union(one_group(work.start[here], work.end[here])))
    if not all(len(side.start) for side in sides):
        return None
    times = np.unique(np.concatenate([*(t for side in sides for t in side[1:]), *episodes[1:]]))
    start, length = times[:-1], np.diff(times)
    runs = [_open_at(side, start) for side in sides]
    under_way = _open_at(episodes, start)
    state = np.where(under_way, runs[0] + 2 * runs[1], -1)  # 0 neither, 1 cube alone, 2 vector alone, 3 both
    alone = state[(state == 1) | (state == 2)]
    longest, switches = _longest_serial(state, length)
    neither, aic_alone, aiv_alone, both = (int(length[state == code].sum()) for code in range(4))
    return PingPong(
        aic_alone_ns=aic_alone,
        aiv_alone_ns=aiv_alone,
        both_ns=both,
        neither_ns=neither,
        switches=int((alone[1:] != alone[:-1]).sum()),
        longest_ns=longest,
        longest_switches=switches,
        serial_ns=aic_alone + aiv_alone + neither,
    )


def _open_at(pieces: Intervals, moments: Ints) -> NDArray[np.int64]:
    """1 where one of the disjoint pieces is open, else 0."""
    return np.searchsorted(pieces.start, moments, side="right") - np.searchsorted(pieces.end, moments, side="right")


def _longest_serial(state: Ints, length: Ints) -> tuple[int, int]:
    """The longest stretch without both units at once, within an episode, and its switches."""
    serial = (state >= 0) & (state != 3)
    stretch = np.cumsum(~serial)[serial]  # a number per stretch
    if len(stretch) == 0:
        return 0, 0
    lengths = np.bincount(stretch, weights=length[serial])
    best = int(np.argmax(lengths))
    inside_best = np.flatnonzero(serial)[stretch == best]
    alone = state[inside_best]
    alone = alone[alone > 0]
    return int(length[inside_best].sum()), int((alone[1:] != alone[:-1]).sum())
