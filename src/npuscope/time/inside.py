"""Inside one block of a kernel: what every pipe of its cores did, who waited for whom, and what bounds it.

The block is of the kind that took most time of the run, with memory as slow as the run had it on average. `chain_of`
says which instructions decide how long it takes, from its end back to its beginning: before an instruction comes the
one whose end let it start (the one before on its pipe, the maker of an operand, the last reader of its slot). What
waited to be issued is preceded by what the scalar unit issued since it last waited. So every moment of a block belongs
to one instruction, and the lines of a program add up to the time of its blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.explain.diagnosis import Cause, Diagnosis, Span
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT, MEAN_TIME, SHARE, TEXT, rough_percent, significant
from npuscope.time.chip.job import SLOW, Floats
from npuscope.time.chip.prepare import STEPS
from npuscope.time.core.pipes import CUBE_SCALAR, ISSUING, REASONS, BlockTrace, Timing, trace_block
from npuscope.time.core.stream import BARRIER, ISSUE, PIPES, UNITS, InstructionStream, Ints
from npuscope.time.run import Simulated
from npuscope.trace.core import Meta, Trace

FORMAT = "pipes"
NAMES = tuple(f"{unit} {pipe}" for unit, pipe in zip(UNITS, PIPES, strict=True))
PIPE = Column("pipe", TEXT, "unit and pipe")
WAITED = Column("waited_ns", MEAN_TIME, "it was free and its next instruction could not start", title="waited")
PIPE_TABLE = Columns(
    "simulate.pipes",
    "A pipe that did something. Times have fractions.",
    PIPE,
    Column("instructions", COUNT, "on it"),
    Column("busy_ns", MEAN_TIME, "it worked"),
    Column("share", SHARE, "busy, of the block"),
    WAITED,
    Column("waited_for", TEXT, "for what, with the microseconds of each", title="for (µs)"),
)
WAIT_TABLE = Columns(
    "simulate.waits",
    "Instructions of one line that waited, all turns together, the longest first.",
    PIPE,
    Column("name", TEXT, "the instruction"),
    Column("source", TEXT, "file and line"),
    Column("for", TEXT, "a pipe's result, its issue, or a free slot"),
    Column("times", COUNT, "so often"),
    WAITED,
)
AWAITED = (*NAMES, *REASONS[ISSUING:])  # what an instruction can wait for: a pipe's result, its issue, a free slot


@dataclass(frozen=True)
class Inside:
    """`kind`: of the job's classes. `share`: of what it loads how much is not in L2. `slow`: how many times as long as
    alone on the chip a transfer takes. `sites`: `file:line` of each site."""

    kernel: str
    blocks: int  # of this kind, of all of the kernel
    all_blocks: int
    kind: int
    share: float
    slow: float
    timing: Timing
    lane: BlockTrace
    stream: InstructionStream
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
        waited = self.instructions.filter(pl.col("waited_ns") > 0).group_by("pipe", "for")
        sums = waited.agg(pl.col("waited_ns").sum()).sort("for").rows()
        for n, count in enumerate(np.bincount(self.lane.pipe, minlength=len(NAMES)).tolist()):
            if count:
                waits = {what: ns for pipe, what, ns in sums if pipe == NAMES[n]}
                share = float(self.timing.busy[n]) / self.timing.duration if self.timing.duration else 0.0
                longest = sorted(waits.items(), key=lambda wait: -wait[1])
                text = ", ".join(f"{what} {ns / 1000:.3g}" for what, ns in longest)
                rows.append((NAMES[n], count, float(self.timing.busy[n]), share, float(sum(waits.values())), text))
        types = (pl.String, pl.Int64, pl.Float64, pl.Float64, pl.Float64, pl.String)
        return pl.DataFrame(rows, schema=dict(zip(PIPE_TABLE.keys, types, strict=True)), orient="row")

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
    number, steps = simulated.prepared.kind_of(kind)
    share = steps / STEPS
    slow = float(np.interp(np.mean(run[of_kind]), job.run[kind], SLOW))
    stream = simulated.prepared.classes.streams[number]
    timing, lane = trace_block(stream, slow, share=share)
    sites = tuple(f"{site.file.rpartition('/')[2]}:{site.line}" for site in program.recording.sites)
    return Inside(kernel, int(np.sum(of_kind)), len(rows), kind, share, slow, timing, lane, stream, sites)


# in place of a pipe: the scalar unit handed instructions out, or a barrier was passed; a result was on its way
ISSUED, ARRIVING = len(PIPES), len(PIPES) + 1
PLACES = (*NAMES, "issue", "arrival")


@dataclass(frozen=True)
class Chain:
    """Pieces of a block's time, the last first: from when to when, whose, and on which place."""

    start: Floats
    end: Floats
    site: Ints
    place: Ints
    instruction: Ints  # row of the trace; -1 for time that no traced instruction has

    def by_site(self, sites: int) -> Floats:
        """Nanoseconds of every site on every place."""
        found = np.zeros((sites, len(PLACES)))
        np.add.at(found, (self.site, self.place), self.end - self.start)
        return found


Piece = tuple[float, float, int, int, int]


def chain_of(stream: InstructionStream, timing: Timing, lane: BlockTrace) -> Chain:
    """The chain of a block whose instructions were all traced."""
    arrived = lane.arrived
    pieces: list[Piece] = []
    until = timing.duration
    now = int(np.argmax(arrived)) if len(arrived) else -1
    if now >= 0 and arrived[now] < until:  # a barrier comes last, and nothing after it
        pieces.append((float(arrived[now]), until, _barrier(stream, int(lane.row[now])), ISSUED, -1))
        until = float(arrived[now])
    while now >= 0:
        start, end, site = float(lane.start[now]), float(lane.end[now]), int(lane.site[now])
        if end < until:
            pieces.append((end, until, site, ARRIVING, now))
            until = end
        pieces.append((start, until, site, int(lane.pipe[now]), now))
        until, before = start, int(lane.because[now])
        if lane.reason[now] == ISSUING:
            # the scalar unit went on at the end of the one before, or when its result was there (at a barrier)
            left = arrived[before] if arrived[before] <= until else lane.end[before]
            base = 0.0 if before < 0 else float(left)
            pieces += _issued(stream, timing, lane, now, before, base, until)
            until = base
        now = before
    if until > 0.0:  # nothing was traced
        pieces.append((0.0, until, int(stream.sites[0]), ISSUED, -1))
    times = np.array([piece[:2] for piece in pieces], np.float64).reshape(-1, 2)
    whose = np.array([piece[2:] for piece in pieces], np.int64).reshape(-1, 3)
    return Chain(times[:, 0], times[:, 1], *whose.T)


def _issued(
    stream: InstructionStream, timing: Timing, lane: BlockTrace, now: int, before: int, base: float, until: float
) -> list[Piece]:
    """The stretch in which the scalar unit issued one after another up to `now`, the last first."""
    vector = lane.pipe[now] > CUBE_SCALAR
    rows = np.arange(before + 1, now + 1)
    if len(timing.met):  # an instruction of before the barrier is none of these
        rows = rows[lane.start[rows] >= base]
    rows = rows[(lane.pipe[rows] > CUBE_SCALAR) == vector]
    costs = stream.costs[lane.row[rows], ISSUE]
    ends = base + np.cumsum(costs) / max(float(np.sum(costs)), 1e-12) * (until - base)
    ends[-1] = until
    starts = np.concatenate([[base], ends[:-1]])
    numbers = zip(starts.tolist(), ends.tolist(), lane.site[rows].tolist(), rows.tolist(), strict=True)
    return [(first, last, site, ISSUED, row) for first, last, site, row in numbers][::-1]


def _barrier(stream: InstructionStream, row: int) -> int:
    """The site of the barrier after a row, or of the row where there is none."""
    later = np.flatnonzero(stream.code[row:, 0] == BARRIER)
    return int(stream.sites[row + later[0]] if len(later) else stream.sites[row])


THROUGHOUT = 0.7  # of the block: a pipe that is busy for as long bounds it
DOES = {
    "MTE2": "loads",
    "MTE1": "moves into the cube's own buffers",
    "M": "the matrix unit",
    "FIXP": "writing results out of the cube core",
    "V": "vector work",
    "MTE3": "stores",
    "S": "scalar work",
}
MANY = ("MTE2", "MTE1", "MTE3")  # spoken of in the plural
KIND = {"MTE2": "bandwidth", "FIXP": "bandwidth", "MTE3": "bandwidth"}
REMEDY = {
    "MTE2": "Load less or load earlier: larger tiles that are used more often, narrower types, more turns in flight.",
    "MTE1": "Use what lies in the cube's buffers more often before it is replaced.",
    "M": "Multiply less: fewer padded rows, shapes that fill the unit.",
    "FIXP": "Write results out less often: add up longer in the accumulator.",
    "V": "Do less vector work: fewer passes over the data, narrower types.",
    "MTE3": "Store less: keep what is read again on the chip.",
    "S": "Fewer and longer instructions: larger tiles, fewer accesses to single elements.",
}


def block_diagnosis(block: Inside) -> Diagnosis:
    """The pipes of a block as causes, the busiest first."""
    whole = block.timing.duration
    busy = {name: float(ns) / whole if whole else 0.0 for name, ns in zip(NAMES, block.timing.busy, strict=True)}
    ordered = sorted((name for name in NAMES if busy[name] > 0), key=lambda name: -busy[name])
    window = (0, round(whole))
    if not ordered:
        return Diagnosis((Cause("unknown", "Nothing runs in this block.", 0.0),), window[1], window)
    waits = {
        name: (ns, reasons) for name, ns, reasons in block.pipes().select("pipe", "waited_ns", "waited_for").iter_rows()
    }
    causes = [_cause(name, busy, waits, rank == 0, window) for rank, name in enumerate(ordered)]
    return Diagnosis(tuple(causes), window[1], window)


def _cause(
    name: str, busy: dict[str, float], waits: dict[str, tuple[float, str]], first: bool, window: tuple[int, int]
) -> Cause:
    unit, pipe = name.split(" ")
    does = DOES[pipe] + (" of the vector core" if unit == "AIV" and pipe in ("MTE2", "S") else "")
    verb = "" if pipe in MANY else "s"
    share = busy[name]
    how_busy = f"{name} is busy {rough_percent(share)} of it"
    if first and share >= THROUGHOUT:
        sentence = f"{does[:1].upper()}{does[1:]} bound{verb} this block: {how_busy}."
    elif first:
        sentence = f"No pipe is busy throughout this block: {does} come{verb} nearest, {how_busy}."
    else:
        sentence = f"{how_busy[:1].upper()}{how_busy[1:]} ({does})."
    waited, reasons = waits.get(name, (0.0, ""))
    evidence = (f"It waits {significant(waited / 1000)} µs, for: {reasons}.",) if waited else ()
    where = (Span(*window, lane=NAMES.index(name)),)
    return Cause(KIND.get(pipe, "core"), sentence, share, evidence, None, where, REMEDY[pipe])
