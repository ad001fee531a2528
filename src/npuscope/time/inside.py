"""Inside one block of a kernel: what every pipe of its cores did, and who waited for whom.

The block is of the kind that took most time of the run, with memory as slow as the run had it on average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT, MEAN_TIME, SHARE, TEXT
from npuscope.time.chip.block_classes import STEPS
from npuscope.time.chip.job import SLOW, Floats
from npuscope.time.core.pipes import ISSUING, REASONS, BlockTrace, Timing, trace_block
from npuscope.time.core.stream import PIPES, UNITS, Stream
from npuscope.time.run import Simulated
from npuscope.trace.core import Trace
from npuscope.trace.meta import Meta

FORMAT = "pipes"
NAMES = tuple(f"{unit} {pipe}" for unit, pipe in zip(UNITS, PIPES, strict=True))
PIPE = Column("pipe", TEXT, "unit and pipe")
WAITED = Column("waited_ns", MEAN_TIME, "it was free and its next instruction could not start", title="waited")
PIPE_TABLE = Columns(
    "simulate.pipes",
    "A pipe that did something. Times have fractions.",
    (
        PIPE,
        Column("instructions", COUNT, "on it"),
        Column("busy_ns", MEAN_TIME, "it worked"),
        Column("share", SHARE, "busy, of the block"),
        WAITED,
        Column("waited_for", TEXT, "for what, with the microseconds of each", title="for (µs)"),
    ),
)
WAIT_TABLE = Columns(
    "simulate.waits",
    "Instructions of one line that waited, all turns together, the longest first.",
    (
        PIPE,
        Column("name", TEXT, "the instruction"),
        Column("source", TEXT, "file and line"),
        Column("for", TEXT, "a pipe's result, its issue, or a free slot"),
        Column("times", COUNT, "so often"),
        WAITED,
    ),
)
AWAITED = (*NAMES, *REASONS[ISSUING:])  # what an instruction can wait for: a pipe's result, its issue, a free slot


@dataclass(frozen=True)
class Inside:
    """`slow`: how many times as long as alone on the chip a transfer takes. `sites`: `file:line` of each site."""

    kernel: str
    blocks: int  # of this kind, of all of the kernel
    all_blocks: int
    slow: float
    timing: Timing
    lane: BlockTrace
    stream: Stream
    sites: tuple[str, ...]

    @cached_property
    def instructions(self) -> pl.DataFrame:
        """pipe, name, source, start_ns, end_ns, waited_ns and for what, in order of program."""
        lane = self.lane
        waited = np.zeros(len(lane.pipe))
        for pipe in np.unique(lane.pipe).tolist():
            rows = np.flatnonzero(lane.pipe == pipe)
            rows = rows[np.argsort(lane.start[rows], kind="stable")]  # what comes from the ring is a queue of its own
            until = np.concatenate([[0.0], np.maximum.accumulate(lane.end[rows])[:-1]])
            waited[rows] = np.maximum(lane.start[rows] - until, 0.0)
        waited[lane.reason < 0] = 0.0  # its pipe was at work until then
        return pl.DataFrame(
            {
                "pipe": [NAMES[pipe] for pipe in lane.pipe.tolist()],
                "name": [self.stream.names[row] for row in lane.row.tolist()],
                "source": [self.sites[site] for site in lane.site.tolist()],
                "start_ns": lane.start,
                "end_ns": lane.end,
                "waited_ns": waited,
                "for": [AWAITED[reason] if reason >= 0 else None for reason in lane.reason.tolist()],
            },
            schema_overrides={"for": pl.String, "pipe": pl.String, "name": pl.String, "source": pl.String},
        )

    def tables(self) -> dict[str, Table]:
        return {"pipes": Table(PIPE_TABLE, self.pipes()), "waits": Table(WAIT_TABLE, self.waits())}

    def pipes(self) -> pl.DataFrame:
        """Every pipe that did something."""
        rows = []
        counts = np.bincount(self.lane.pipe, minlength=len(NAMES))
        waited = (
            self.instructions.filter(pl.col("waited_ns") > 0).group_by("pipe", "for").agg(pl.col("waited_ns").sum())
        )
        for n, name in enumerate(NAMES):
            if counts[n]:
                mine = waited.filter(pl.col("pipe") == name).sort("for")
                waits = dict(zip(mine["for"].to_list(), mine["waited_ns"].to_list(), strict=True))
                busy = float(self.timing.busy[n])
                share = busy / self.timing.duration if self.timing.duration else 0.0
                rows.append((name, int(counts[n]), busy, share, sum(waits.values()), waits))
        schema = {"pipe": pl.String, "instructions": pl.Int64, "busy_ns": pl.Float64, "share": pl.Float64}
        frame = pl.DataFrame([row[:4] for row in rows], schema=schema, orient="row")
        told = [", ".join(f"{n} {ns / 1000:.3g}" for n, ns in sorted(r[5].items(), key=lambda w: -w[1])) for r in rows]
        return frame.with_columns(
            pl.Series("waited_ns", [row[4] for row in rows], dtype=pl.Float64),
            pl.Series("waited_for", told, dtype=pl.String),
        )

    def over_time(self, bins: int) -> dict[str, Floats]:
        """Of every pipe that did something the share it was busy in each of so many equal stretches of the block."""
        edges = np.linspace(0.0, max(self.timing.duration, 1e-9), bins + 1)
        found: dict[str, Floats] = {}
        for n in np.unique(self.lane.pipe).tolist():
            mine = self.lane.pipe == n
            order = np.argsort(self.lane.start[mine], kind="stable")
            start, end = self.lane.start[mine][order], self.lane.end[mine][order]  # one after another
            worked = np.repeat(np.concatenate([[0.0], np.cumsum(end - start)]), 2)[1:-1]
            so_far = np.interp(edges, np.stack([start, end], axis=1).ravel(), worked)
            found[NAMES[n]] = np.diff(so_far) / (edges[1] - edges[0])
        return found

    def waits(self) -> pl.DataFrame:
        """Which instructions waited longest, for what, all turns of a line together."""
        waited = self.instructions.filter(pl.col("waited_ns") > 0)
        groups = waited.group_by("pipe", "name", "source", "for", maintain_order=True)
        return groups.agg(times=pl.len(), waited_ns=pl.col("waited_ns").sum()).sort(
            "waited_ns", descending=True, maintain_order=True
        )

    def trace(self) -> Trace:
        """A lane per pipe, a slice per instruction."""
        lane = self.lane
        start, end = (np.round(times).astype(np.int64) for times in (lane.start, lane.end))
        slices = pl.DataFrame({"lane": lane.pipe.astype(np.uint32), "start": start, "dur": end - start}).with_columns(
            kernel=self.instructions["name"] + " " + self.instructions["source"],
            kind=pl.lit("task"),
            task=pl.int_range(pl.len(), dtype=pl.Int64),
            waited_ns=self.instructions["waited_ns"].round().cast(pl.Int64),
            waited_for=self.instructions["for"],
        )
        lanes = pl.DataFrame({"name": NAMES}).with_row_index("lane").with_columns(unit=pl.lit("stream"))
        meta = Meta(FORMAT, clock="simulated", records=slices.height, notes={"kernel": self.kernel, "slow": self.slow})
        return Trace.of(slices, lanes, meta)


def inside(simulated: Simulated, kernel: str) -> Inside:
    """A block of a kernel, by the kernel's name."""
    job, program = simulated.prepared.job, simulated.prepared.program
    tasks = program.recording.tasks
    mine = np.array([task.kernel == kernel for task in tasks], bool)
    rows = np.flatnonzero(mine[job.task_of]) if len(job.task_of) else np.zeros(0, np.int64)
    if len(rows) == 0:
        known = ", ".join(dict.fromkeys(task.kernel for task in tasks if task.groups))
        raise NpuscopeError(f"no kernel '{kernel}' ran", remedy=f"Those that did: {known}.")
    run = simulated.times.end[rows] - simulated.times.start[rows]
    kinds = job.block_class[rows]
    kind = int(np.argmax(np.bincount(kinds, run)))
    of_kind = kinds == kind
    number, share = simulated.prepared.kind_of(kind)
    slow = float(np.interp(np.mean(run[of_kind]), job.run[kind], SLOW))
    stream = simulated.prepared.classes.streams[number]
    timing, lane = trace_block(stream, slow, share=share / STEPS)
    sites = tuple(f"{site.file.rpartition('/')[2]}:{site.line}" for site in program.recording.sites)
    return Inside(kernel, int(np.sum(of_kind)), len(rows), slow, timing, lane, stream, sites)
