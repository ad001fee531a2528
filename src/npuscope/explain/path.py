"""The path that decides the end: a tiling of the window into runs and waits, each attributed.

With edges it is the critical path, walked back from the slice that ended last: to the producer whose end was seen
last, or to the slice before on the same core if that one ended later. Waits between two slices of the path carry the
reasons of `idle_reasons`. Without edges it is a cover: at each moment one running slice, compute before
communication, and idle time with the reason of what ended it. Both add up to the window exactly.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.explain.waits import (
    IN_WORDS,
    WAIT,
    PieceArrays,
    Pieces,
    Readiness,
    add_after_data,
    add_nothing_runs,
    kernel_names,
)
from npuscope.explain.work import NEVER, NONE, Work
from npuscope.table.columns import Column, Columns, Table, Tabular, all_rows
from npuscope.table.formats import COUNT, SHARE, TEXT, TIME, duration, many, percent
from npuscope.trace.intervals import Ints, gaps, one_group, outside, union

LINKS = ("dependency", "core", "none")  # why a slice of the path began no earlier: its producer, its core, neither
NO_LINK = LINKS.index("none")
ON_PATH = (
    Column("segments", COUNT, "pieces of the path; null for waits"),
    Column("path_ns", TIME, "on the path: the end can fall by this at most", title="critical path"),
    Column("share", SHARE, "of the window", title="of window"),
)
PATH = Columns(
    "report.critical_path.table",
    "A kernel or a wait on the path that decides the end, the longest first; they sum to the window.",
    Column("what", WAIT, "a kernel's name, or `wait:` and the reason", title="kernel or wait"),
    *ON_PATH,
)
PATH_KERNELS = Columns(
    "report.critical_path.kernels",
    "A kernel that runs on the path.",
    Column("kernel", TEXT, "its name", json="name"),
    *ON_PATH,
)


@dataclass(frozen=True, repr=False)
class CriticalPath(Tabular):
    """`segments` in time order: start, end, part (run or a reason), kernel, lane, task, link, row of the work."""

    kind: str  # chain (from edges) or cover (of the timeline)
    coded: pl.DataFrame  # the segments with kernels as categories
    window_ns: int
    notes: tuple[str, ...]

    @cached_property
    def segments(self) -> pl.DataFrame:
        return self.coded.with_columns(pl.col("kernel").cast(pl.String))

    @cached_property
    def slices(self) -> int:
        return int(self.coded.select(pl.col("row").filter(pl.col("part") == "run").n_unique()).item())

    def by_part(self) -> dict[str, int]:
        """run or reason -> nanoseconds on the path; they sum to the window."""
        return dict(self._by_part)

    @cached_property
    def _by_part(self) -> dict[str, int]:
        length = pl.col("end") - pl.col("start")
        table = self.coded.group_by("part").agg(ns=length.sum()).sort("ns", "part", descending=[True, False])
        return {str(part): int(ns) for part, ns in table.iter_rows()}

    def by_kernel(self) -> pl.DataFrame:
        """What each kernel runs on the path. The end can fall by path_ns at most if the kernel costs nothing and every
        task stays on its core in its order."""
        return self._by_kernel

    @cached_property
    def _by_kernel(self) -> pl.DataFrame:
        run = self.coded.lazy().filter(pl.col("part") == "run")
        table = run.group_by("kernel").agg(segments=pl.len(), path_ns=(pl.col("end") - pl.col("start")).sum())
        share = pl.col("path_ns") / self.window_ns if self.window_ns else pl.lit(0.0)
        table = table.with_columns(pl.col("kernel").cast(pl.String), share.alias("share"))
        return table.sort("path_ns", "kernel", descending=[True, False]).collect()

    def by_link(self) -> dict[str, int]:
        """Run time on the path by what made its slices begin no earlier."""
        run = self.coded.lazy().filter(pl.col("part") == "run")
        table = run.group_by("link").agg(ns=(pl.col("end") - pl.col("start")).sum()).sort("link").collect()
        return {str(link): int(ns) for link, ns in table.iter_rows()}

    def tables(self) -> dict[str, Table]:
        return {"kernels": Table(PATH_KERNELS, self.by_kernel()), "table": Table(PATH, self._kernels_and_waits())}

    def _kernels_and_waits(self) -> pl.DataFrame:
        waits = [(f"wait: {part}", ns) for part, ns in self.by_part().items() if part != "run"]
        frame = pl.DataFrame(waits, schema={"what": pl.String, "path_ns": pl.Int64}, orient="row")
        frame = frame.with_columns(share=pl.col("path_ns") / max(self.window_ns, 1))
        both = pl.concat([self.by_kernel().rename({"kernel": "what"}), frame], how="diagonal_relaxed")
        return both.sort("path_ns", "what", descending=[True, False])

    def title(self) -> str:
        what = "critical path" if self.kind == "chain" else "timeline (no critical path without dependencies)"
        parts = ", ".join(
            f"{IN_WORDS.get(part, part)} {percent(ns / self.window_ns)}" for part, ns in self.by_part().items() if ns
        )
        lines = [f"{what}: {many(self.slices, 'slice')} over {duration(self.window_ns)}; {parts}"]
        return "\n".join([*lines, *self.notes])

    def as_dict(self) -> dict[str, object]:
        return {
            "kind": self.kind,
            "slices": self.slices,
            "window_ns": self.window_ns,
            "parts": self.by_part(),
            "run_by_link": self.by_link(),
            **all_rows(self.tables()),
            "bound": {"kernels": dict(self.by_kernel().select("kernel", "path_ns").iter_rows()),
                      "reasons": {part: ns for part, ns in self.by_part().items() if part != "run"}},
            "notes": list(self.notes),
        }  # fmt: skip


def path_of(work: Work, ready: Readiness) -> CriticalPath:
    """The chain of runs and waits that ends last; a cover of the timeline where nobody says who waits for whom."""
    if ready.has_dependencies and work.on_cores and len(work.lane):
        return _chain(work, ready)
    return cover_of(work, ready)


def _close(work: Work, kind: str, found: PieceArrays, link: Ints, notes: tuple[str, ...]) -> CriticalPath:
    """Pieces in time order, with `link` per slice of the work, as a path."""
    lanes = pl.concat([work.lanes["lane"], pl.Series([None], dtype=pl.UInt32)])
    tasks = pl.concat([work.slices["task"], pl.Series([None], dtype=pl.Int64)])
    segments = pl.DataFrame(
        {
            "start": found.start,
            "end": found.end,
            "part": found.parts(),
            "kernel": kernel_names(work, found.row),
            "lane": lanes.gather(np.append(work.lane, work.lanes.height)[found.row]),
            "task": tasks.gather(np.where(found.row == NONE, len(work.lane), found.row)),
            "link": pl.Series(LINKS, dtype=pl.Enum(LINKS)).gather(np.append(link, NO_LINK)[found.row]),
            "row": found.row,
        }
    )
    return CriticalPath(kind, segments, work.wall, notes)


def _chain(work: Work, ready: Readiness) -> CriticalPath:
    """Walk back from the last end. Starts strictly fall, so the walk ends."""
    before, link = _predecessors(work, ready)
    rows = [int(np.argmax(work.end))]
    while before[rows[-1]] != NONE:
        rows.append(int(before[rows[-1]]))
    path = np.array(rows)
    flat = np.zeros(len(path), dtype=np.int64)
    begin = work.start[path]
    # a slice's run counts until the next one of the path began, whatever a capture says of overlaps
    stop = np.minimum(work.end[path], np.append(work.window[1], begin[:-1]))
    pieces = Pieces()
    pieces.add("run", flat, begin, stop, path)
    pieces.add("edge", flat[:1], stop[:1], np.array([work.window[1]]), path[:1])
    waited_from = np.append(stop[1:], work.window[0])
    edge = (np.arange(len(path)) == len(path) - 1) & (ready.dispatch[path] == NEVER)
    pieces.add("edge", flat[edge], waited_from[edge], begin[edge], path[edge])
    add_after_data(pieces, ready, flat[~edge], waited_from[~edge], begin[~edge], path[~edge])
    return _close(work, "chain", pieces.in_order(), link, ())


def _predecessors(work: Work, ready: Readiness) -> tuple[Ints, Ints]:
    """For each slice the one it waited for last, NONE for nothing; and which link that is."""
    begun = np.append(work.start, np.iinfo(np.int64).max)  # NONE looks up the last: begins never
    # what the scheduler saw last made the task ready, where it left a record
    last = np.where((ready.seen >= ready.data) & (ready.seen_row != NONE), ready.seen_row, ready.data_row)
    producer = np.where(begun[last] < work.start, last, NONE)
    core = np.where(begun[work.previous] < work.start, work.previous, NONE)
    free = np.append(work.end, NEVER)[core]
    by_core = free > np.where(producer == NONE, NEVER, np.maximum(ready.data, ready.seen))
    before = np.where(by_core, core, producer)
    link = np.where(by_core, LINKS.index("core"), LINKS.index("dependency"))
    return before, np.where(before == NONE, NO_LINK, link)


def cover_of(work: Work, ready: Readiness) -> CriticalPath:
    """The path that needs no edges: compute, then communication where no compute ran, then copies, then idle time."""
    comm, copy = ((work.slices["kind"] == kind).to_numpy() for kind in ("comm", "copy"))
    pieces, covered = Pieces(), one_group(work.start[:0], work.end[:0])
    for rows in (~(comm | copy), comm, copy):
        begin, end, row = _frontier(work, np.flatnonzero(rows))
        exposed = outside(one_group(begin, end), covered)
        pieces.add("run", np.zeros_like(exposed.of), exposed.start, exposed.end, row[exposed.of])
        covered = union(one_group(np.append(covered.start, exposed.start), np.append(covered.end, exposed.end)))
    add_nothing_runs(pieces, work, ready, gaps(covered, 1, work.window))
    order = "compute before communication before copies"
    note = f"At each moment one running slice counts, {order}: this is no chain of causes."
    return _close(work, "cover", pieces.in_order(), np.full(len(work.lane), NO_LINK), (note,))


def _frontier(work: Work, rows: Ints) -> tuple[Ints, Ints, Ints]:
    """What each slice adds to the time covered by those that began before it: start, end, row."""
    order = rows[np.argsort(work.start[rows], kind="stable")]
    start, end = work.start[order], work.end[order]
    reach = np.maximum.accumulate(end)
    if len(order):
        start = np.maximum(start, np.concatenate([start[:1], reach[:-1]]))
    return start, np.maximum(start, reach), order
