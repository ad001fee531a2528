"""When each piece of work could have started, for which reasons it waited, and how its stamps cut the wait before it.

Dependencies are the runtime's edges (tensormap, creator, explicit) and flows named so. Tasks that never run, such as
allocations and barriers, pass on what their own producers say. Used for the idle gaps of every lane (`idle_reasons`)
and for the waits on the critical path (`path`).
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from npuscope.base.frozen import dataclass
from npuscope.explain.work import NEVER, NONE, Work
from npuscope.table.formats import short, worded
from npuscope.trace.core import Trace
from npuscope.trace.intervals import Intervals, Ints, counting, inside, one_group, outside, union_with_last
from npuscope.trace.names import FURTHER_LAUNCHES, LAUNCHES

REASONS = (
    "dependency",
    "FIN",
    "dispatch",
    "launch",  # of a stream, or of the next dispatch
    "pickup",
    "starved",
    "edge",
    "FIN+dispatch+pickup",  # edges, no dispatch times
    "dependency+FIN+dispatch+starved",  # dispatch times, no edges
    "dependency+pickup",  # a stream whose work was launched
    "dependency+launch+pickup",  # a stream, launch unknown
    "dependency+FIN+dispatch+pickup+starved",  # neither
)
SCHEDULING = ("FIN", "dispatch", "pickup", "FIN+dispatch+pickup")  # what a faster scheduler would shorten
PARTS = ("run", *REASONS)
IN_WORDS = {  # what people read; programs rely on the reasons
    "run": "running tasks",
    "dependency": "waiting for a task that still runs",
    "FIN": "waiting for the scheduler to notice an end",
    "dispatch": "ready, not handed out yet",
    "launch": "not launched yet by the host",
    "pickup": "handed out, not started yet",
    "starved": "nothing ready to run",
    "edge": "before the first or after the last task",
    "FIN+dispatch+pickup": "waiting for the scheduler",
    "dependency+FIN+dispatch+starved": "not handed out yet, why is not recorded",
    "dependency+pickup": "launched, not started yet",
    "dependency+launch+pickup": "idle, when it was launched is not recorded",
    "dependency+FIN+dispatch+pickup+starved": "idle, why is not recorded",
}
REASON = worded(IN_WORDS)  # a reason, or run
WAIT = worded({f"wait: {reason}": words for reason, words in IN_WORDS.items()})  # a wait among other things
_ON_CORES = ("dependency+FIN+dispatch+starved", "pickup", "dependency+FIN+dispatch+pickup+starved")
_ON_STREAMS = ("launch", "dependency+pickup", "dependency+launch+pickup")


class PieceArrays(NamedTuple):
    """Pieces of time: a group (a lane, say), start, end, the row of the slice it belongs to, the part's number, and the
    row of the slice that was waited for (NONE where nobody was)."""

    group: Ints
    start: Ints
    end: Ints
    row: Ints
    part: Ints
    blocker: Ints

    def parts(self) -> pl.Series:
        """The parts by name."""
        return pl.Series(PARTS, dtype=pl.Enum(PARTS)).gather(self.part)


class Pieces:
    """Pieces of time, gathered as they are found. Empty ones are left out."""

    def __init__(self) -> None:
        self._found: list[PieceArrays] = []

    def add(self, part: str, group: Ints, start: Ints, end: Ints, row: Ints, blocker: Ints | None = None) -> None:
        kept = end > start
        number = np.full(int(kept.sum()), PARTS.index(part))
        blocking = np.full(len(number), NONE) if blocker is None else blocker[kept]
        self._found.append(PieceArrays(group[kept], start[kept], end[kept], row[kept], number, blocking))

    def in_order(self) -> PieceArrays:
        """All pieces by group, then start."""
        columns = [np.concatenate(column) for column in zip(*self._found, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        return PieceArrays(*(column[order] for column in columns))


def add_launches(
    pieces: Pieces, ready: Readiness, group: Ints, start: Ints, end: Ints, row: Ints
) -> tuple[Ints, Ints, Ints, Ints]:
    """The parts of waits that lie between two dispatches, or two runs, and the waits without them."""
    for part, pauses in (("launch", ready.between), ("edge", ready.apart)):
        if len(pauses.start):
            asked = one_group(start, end)
            waits, rest = inside(asked, pauses), outside(asked, pauses)
            pieces.add(part, group[waits.of], waits.start, waits.end, row[waits.of])
            group, start, end, row = group[rest.of], rest.start, rest.end, row[rest.of]
    return group, start, end, row


def add_after_data(pieces: Pieces, ready: Readiness, group: Ints, start: Ints, end: Ints, row: Ints) -> None:
    """The waits of slices whose producers have ended: for the launch, FIN, then not submitted, dispatch, pickup."""
    group, start, end, row = add_launches(pieces, ready, group, start, end, row)
    stamped = ready.dispatch[row] != NEVER
    pieces.add("FIN+dispatch+pickup", *(column[~stamped] for column in (group, start, end, row)))
    group, start, end, row = (column[stamped] for column in (group, start, end, row))
    seen = np.clip(ready.seen[row], start, end)
    submitted = np.clip(ready.submitted[row], seen, end)
    handed = np.clip(ready.dispatch[row], submitted, end)
    pieces.add("FIN", group, start, seen, row, ready.seen_row[row])
    pieces.add("starved", group, seen, submitted, row)
    pieces.add("dispatch", group, submitted, handed, row)
    pieces.add("pickup", group, handed, end, row)


def add_without_edges(
    pieces: Pieces, work: Work, ready: Readiness, group: Ints, start: Ints, end: Ints, row: Ints
) -> None:
    """Waits of which only the moment of handing out may be known."""
    group, start, end, row = add_launches(pieces, ready, group, start, end, row)
    before, after, unknown = coarse_reasons(work)
    stamped = ready.dispatch[row] != NEVER
    pieces.add(unknown, *(column[~stamped] for column in (group, start, end, row)))
    group, start, end, row = (column[stamped] for column in (group, start, end, row))
    handed = np.clip(ready.dispatch[row], start, end)
    pieces.add(before, group, start, handed, row)
    pieces.add(after, group, handed, end, row)


def add_nothing_runs(pieces: Pieces, work: Work, ready: Readiness, idle: Intervals) -> None:
    """Idle time of all lanes at once, each piece with the slice that ends it."""
    order = np.append(np.argsort(work.start, kind="stable"), NONE)
    row = order[np.searchsorted(work.start[order[:-1]], idle.end, side="left")]
    # before the first kernel of a window the host may not have launched it yet; the edge of a capture tells nothing
    unknown = (ready.dispatch[row] == NEVER) | work.on_cores if len(work.lane) else np.ones(len(row), dtype=bool)
    at_edge = ((idle.start == work.window[0]) & unknown) | (row == NONE)
    pieces.add("edge", *idle.where(at_edge), np.full(int(at_edge.sum()), NONE))
    add_without_edges(pieces, work, ready, *idle.where(~at_edge), row[~at_edge])


def coarse_reasons(work: Work) -> tuple[str, str, str]:
    """Reasons without edges: before a slice was handed out, after that, and where nobody says when it was."""
    return _ON_CORES if work.on_cores else _ON_STREAMS


def kernel_names(work: Work, rows: Ints) -> pl.Series:
    """The kernels of rows, as categories: quick to group by, and in no order of names; null for NONE, which is -1 and
    so finds the entry at the end."""
    names = pl.Series([*work.kernels, None], dtype=pl.Enum(work.kernels))
    return names.gather(np.append(work.kernel, len(work.kernels))[rows])


DEPENDENCIES = ["tensormap", "creator", "explicit"]


@dataclass(frozen=True, repr=False)
class Readiness:
    """Stamps per slice of the work; NEVER or NONE where there is nothing to wait for or nothing is recorded."""

    start: Ints  # of each slice
    task: Ints  # a number per task, which groups `runs`
    data: Ints  # when the last producer ended
    data_row: Ints  # the slice that ended then
    seen: Ints  # when the scheduler had seen every producer's end
    seen_row: Ints
    submitted: Ints  # when the orchestrator had submitted the task
    dispatch: Ints  # when the slice was handed out: to its core, or to its stream
    src: Ints  # edges between task numbers, barriers included
    dst: Ints
    runs: Intervals  # when a producer of each task ran; group = task
    runs_row: Ints  # for each of those, the slice that ended with it
    between: Intervals  # pauses of a whole card between two dispatches: nothing of the next one can run yet
    apart: Intervals  # pauses between two runs, which belong to neither
    whole: bool = False  # the capture has every edge there is, be it none

    @property
    def edges(self) -> int:
        """Dependencies, those from and to barriers included."""
        return len(self.src)

    @property
    def has_dependencies(self) -> bool:
        """Whether the capture says who waits for whom."""
        return self.whole or len(self.src) > 0

    @property
    def contradicted(self) -> int:
        """Slices that began before a producer of theirs had ended; a cycle of edges always has some."""
        return int((self.data > self.start).sum())

    @property
    def ready(self) -> Ints:
        """When the scheduler could hand out each slice."""
        return np.maximum(np.maximum(self.data, self.seen), self.submitted)


def readiness(work: Work) -> Readiness:
    """The stamps of every slice."""
    tasks, edges = work.slices["task"], dependencies(work.trace)
    known = pl.concat([tasks, edges["src"], edges["dst"]]).drop_nulls().unique().sort().to_numpy()
    # slices without a task share the place after the last
    task = np.where(tasks.is_null().to_numpy(), len(known), _places(tasks.fill_null(known[:1].sum()).to_numpy(), known))
    src, dst = (_places(edges[end].to_numpy(), known) for end in ("src", "dst"))
    order = np.lexsort((src, dst))
    src, dst = src[order], dst[order]
    has_slice = np.zeros(len(known) + 1, dtype=bool)
    has_slice[task] = True
    data, data_row = _pass_on(src, dst, task, work.end, work.end, has_slice)
    seen, seen_row = _pass_on(src, dst, task, work.finish, work.end, has_slice)
    submitted = _submissions(work.trace, known)
    dispatch = work.dispatch
    if not work.on_cores:
        dispatch = np.where(dispatch != NEVER, dispatch, launches_of(work.trace, tasks))
    runs, runs_row = _runs(work, task, src, dst, has_slice)
    between, apart, last, last_row = _between_dispatches(work)
    return Readiness(
        start=work.start,
        task=task,
        data=np.maximum(data[task], last),
        data_row=np.where(last > data[task], last_row, data_row[task]),
        seen=seen[task],
        seen_row=seen_row[task],
        submitted=submitted[task],
        dispatch=dispatch,
        src=src,
        dst=dst,
        runs=runs,
        runs_row=runs_row,
        between=between,
        apart=apart,
        whole=bool(work.trace.meta.notes.get("whole_graph")),
    )


def _between_dispatches(work: Work) -> tuple[Intervals, Intervals, Ints, Ints]:
    """When nothing of a card runs because the host has not launched its next dispatch, in captures that tell dispatches
    apart: those of one run, then those of different runs; and for each slice of a dispatch when the last work before it
    had ended, and which slice that was."""
    last, last_row = np.full(len(work.lane), NEVER), np.full(len(work.lane), NONE)
    nothing = one_group(last[:0], last[:0])
    if "run" not in work.trace.slices.columns or not len(last):
        return nothing, nothing, last, last_row
    order = np.argsort(work.start, kind="stable")
    numbers = work.with_columns("run").select(pl.col("step", "run").fill_null(-1))
    number, run = (numbers[name].to_numpy()[order] for name in ("step", "run"))
    start, end = work.start[order], work.end[order]
    reach = np.maximum.accumulate(end)
    ends = np.maximum.accumulate(np.where(end == reach, np.arange(len(order)), 0))  # which had ended last by then
    _, firsts, which = np.unique(number, return_index=True, return_inverse=True)
    after = np.sort(firsts[firsts > 0])
    after = after[start[after] > reach[after - 1]]
    launched = np.full(len(firsts), np.iinfo(np.int64).max)
    np.minimum.at(launched, which, np.where(work.dispatch[order] == NEVER, start, work.dispatch[order]))
    begin = reach[after - 1]
    stop = np.clip(launched[which[after]], begin, start[after])
    for first, ended, row in zip(after.tolist(), begin.tolist(), ends[after - 1].tolist(), strict=True):
        here = order[number == number[first]]
        last[here], last_row[here] = ended, order[row]
    same, pause = run[after] == run[ends[after - 1]], stop > begin
    within, other = (one_group(begin[rows], stop[rows]) for rows in (same & pause, ~same & pause))
    return within, other, last, last_row


def dependencies(trace: Trace) -> pl.DataFrame:
    """The edges that say one task waits for another, with both ends known, each pair once."""
    edges = trace.edges
    waits = pl.col("source").is_in(DEPENDENCIES)
    if "name" in edges.columns:
        waits |= pl.col("name") == "dependency"
    both = pl.col("src").is_not_null() & pl.col("dst").is_not_null() & (pl.col("src") != pl.col("dst"))
    return edges.filter(waits & both).select("src", "dst").unique()


# what edges tell that is no dependency, by the name of the flow
_LINKS = {
    **dict.fromkeys(LAUNCHES, "launches"),
    **dict.fromkeys(FURTHER_LAUNCHES, "launches"),
    "fwdbwd": "links from forward to backward",
}


def no_dependencies(trace: Trace) -> str:
    """What a capture lacks that does not tell who waits for whom, beside what its edges do tell."""
    if trace.edges.is_empty():
        return "no edges"
    names = trace.edges["name"] if "name" in trace.edges.columns else trace.edges["source"]
    links: Counter[str] = Counter()
    for name, count in names.value_counts(sort=True).iter_rows():
        links[_LINKS.get(name, f"called '{short(str(name), 40)}'")] += count
    total, kinds = trace.edges.height, links.most_common(3)
    are = kinds[0][0] if len(links) == 1 else ", ".join(f"{count:,} {kind}" for kind, count in kinds)
    more = ", …" if len(links) > len(kinds) else ""
    return f"no dependencies between tasks (its {total:,} {'edges are' if total > 1 else 'edge is one of'} {are}{more})"


def _places(values: Ints, known: Ints) -> Ints:
    """Where each value stands among the known ones, which are sorted; a table where they lie close together."""
    if len(known) == 0 or known[-1] - known[0] > 8 * len(known):
        return np.searchsorted(known, values)
    table = np.zeros(int(known[-1] - known[0]) + 1, dtype=np.int64)
    table[known - known[0]] = np.arange(len(known))
    places: Ints = table[values - known[0]]
    return places


def _latest(task: Ints, stamp: Ints, end: Ints, tasks: int) -> tuple[Ints, Ints]:
    """The latest stamp of each task and the row that has it: of several, such as the cores of a mixed block, which are
    seen done at once, the one that ended last. No task at all, the last place, has none."""
    order = np.lexsort((end, stamp))
    latest, row = np.full(tasks, NEVER), np.full(tasks, NONE)
    latest[task[order]], row[task[order]] = stamp[order], order  # of equal places the last assignment stays
    latest[-1], row[-1] = NEVER, NONE
    return latest, row


def _pass_on(src: Ints, dst: Ints, task: Ints, stamps: Ints, end: Ints, ran: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """Per task, the latest stamp among its producers' slices; what never ran stands for its own producers."""
    waits, waits_row = np.full(len(ran), NEVER), np.full(len(ran), NONE)
    if len(src) == 0:
        return waits, waits_row
    stamp, row = _latest(task, stamps, end, len(ran))
    silent = np.flatnonzero(~ran)
    while True:
        order = np.lexsort((stamp[src], dst))
        last = np.flatnonzero(np.append(dst[order][1:] != dst[order][:-1], True))
        producer = src[order][last]
        waits[dst[order][last]], waits_row[dst[order][last]] = stamp[producer], row[producer]
        if np.array_equal(stamp[silent], waits[silent]):
            return waits, waits_row
        stamp[silent], row[silent] = waits[silent], waits_row[silent]


def _runs(work: Work, task: Ints, src: Ints, dst: Ints, ran: NDArray[np.bool_]) -> tuple[Intervals, Ints]:
    """When a producer of each task ran, and which slice ended then. What never runs passes on its own producers."""
    if len(src) == 0:
        return Intervals(src, src, src), src
    rows = np.flatnonzero(task < len(ran) - 1)
    own, last = union_with_last(Intervals(task[rows], work.start[rows], work.end[rows]))
    own_row = rows[last]
    through = ~ran[dst]
    known, known_row = own, own_row
    while through.any():
        passed, passed_row = _of_producers(known, known_row, src[through], dst[through], len(ran))
        both = Intervals(*(np.append(a, b) for a, b in zip(own, passed, strict=True)))
        order = np.lexsort((both.start, both.group))
        before, known = known, both.where(order)
        known_row = np.append(own_row, passed_row)[order]
        if known.length == before.length:
            break
    return _of_producers(known, known_row, src, dst, len(ran))


def _of_producers(known: Intervals, row: Ints, src: Ints, dst: Ints, tasks: int) -> tuple[Intervals, Ints]:
    """The union of every consumer's producers' runs, and the slice that ends each piece."""
    begins = np.searchsorted(known.group, np.arange(tasks + 1))
    count = begins[src + 1] - begins[src]
    piece = np.repeat(begins[src], count) + counting(count)
    found, last = union_with_last(Intervals(np.repeat(dst, count), known.start[piece], known.end[piece]))
    return found, row[piece[last]]


def _submissions(trace: Trace, known: Ints) -> Ints:
    """When the orchestrator was done submitting each task, where it left a record of that."""
    submitted = np.full(len(known) + 1, NEVER)
    if "role" not in trace.lanes.columns:
        return submitted
    lanes = trace.lanes.filter(pl.col("role") == "orchestrator")["lane"]
    records = trace.slices.filter(
        pl.col("lane").is_in(lanes.implode()) & pl.col("task").is_in(pl.Series(known).implode())
    )
    place = np.searchsorted(known, records["task"].to_numpy())
    np.maximum.at(submitted, place, (records["start"] + records["dur"]).to_numpy())
    return submitted


def launches_of(trace: Trace, tasks: pl.Series) -> Ints:
    """When the host's call that put each task on its stream returned; the framework's call where no launch is."""
    launched, returned = trace.launches
    if not len(launched):
        return np.full(len(tasks), NEVER)
    task = tasks.fill_null(launched[0]).to_numpy()
    place = np.minimum(np.searchsorted(launched, task), len(launched) - 1)
    return np.where((launched[place] == task) & tasks.is_not_null().to_numpy(), returned[place], NEVER)
