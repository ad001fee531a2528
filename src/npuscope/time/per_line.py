"""What every source line of a simulated program takes: time, bytes, FLOPs.

`core_ns`: how long blocks took because of the line, which is its part of the chain of instructions that decides when a
block ends (`deciding`), over all blocks. Lines add up to the core time of the run. A kind of block is looked into once,
with the memory as slow as it was for it on average, and stretched to the time that its blocks took; starting a block
counts to the line that submits it. `path_ns`: the same, but of the blocks on the critical path alone; with the waits of
the path lines add up to the wall. `busy_ns`: how long pipes worked for the line, whether or not anybody waited for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
import polars as pl

from npuscope.explain import busy_idle
from npuscope.explain.busy_idle import Busy
from npuscope.explain.explanation import Explanation
from npuscope.ops.dtypes import BY_NAME
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT
from npuscope.tile.record.model import Body, Recording
from npuscope.tile.record.walk import ops_of
from npuscope.time.chip.job import SLOW, Floats, Ints
from npuscope.time.chip.prepare import STEPS
from npuscope.time.core.costs import NS
from npuscope.time.core.pipes import BlockTrace, Timing, trace_block
from npuscope.time.core.stream import BARRIER, InstructionStream
from npuscope.time.inside import PLACES, Chain, chain_of
from npuscope.time.run import Simulated
from npuscope.time.uncertainty import SPAN, kernel_quantity, time_estimate

START, MEET = len(PLACES), len(PLACES) + 1  # beside the pipes: a block is started, it waits for others of its launch
WHERE = (*PLACES, "start", "barrier")
MOST = 1_000_000  # instructions of a block


@dataclass(frozen=True)
class TimedKind:
    """One kind of block, as the run had it: how many, how long on average, and what one of them does inside."""

    number: int  # the class
    body: int  # the class without noise, as timelines number it
    blocks: int
    mean_ns: float
    slow: float  # how many times as long as alone on the chip a transfer takes
    stream: InstructionStream
    timing: Timing
    lane: BlockTrace

    @cached_property
    def chain(self) -> Chain:
        return chain_of(self.stream, self.timing, self.lane)


@dataclass(frozen=True)
class LineTimes:
    """`rows`: a row per site that something was spent on, in the order of the sites.

    `site, file, line, core_ns, path_ns, busy_ns, submit_ns, bytes, flops, place` (that takes most of its core time).
    """

    rows: pl.DataFrame
    core_ns: float
    path_ns: float  # of runs on the critical path


def kinds_of(simulated: Simulated, most: int = MOST) -> Iterator[TimedKind]:
    """Every kind of block that ran, the one with most time first."""
    job, times, classes = simulated.prepared.job, simulated.times, simulated.prepared.classes
    ran = np.flatnonzero(times.core >= 0)
    if not len(ran):
        return
    kinds = job.block_class[ran]
    total = np.bincount(kinds, times.end[ran] - times.start[ran])
    count = np.bincount(kinds)
    of_each = len(job.run) // len(classes.entries)  # with noise a kind is several neighbours
    for kind in np.argsort(-total, kind="stable").tolist():
        if count[kind]:
            number, share = classes.entries[kind // of_each]
            mean = float(total[kind] / count[kind])
            slow = float(np.interp(mean, job.run[kind], SLOW))
            stream = classes.streams[number]
            timing, lane = trace_block(stream, slow, most, share / STEPS)
            yield TimedKind(kind, kind // of_each, int(count[kind]), mean, slow, stream, timing, lane)


def line_times(simulated: Simulated, explained: Explanation | None = None) -> LineTimes:
    """`explained`: the run's own explanation, for the time on the critical path."""
    recording, job = simulated.prepared.program.recording, simulated.prepared.job
    sites = len(recording.sites)
    start = simulated.prepared.program.device.timing["block_start"].value * NS
    core, on_path, busy = np.zeros((sites, len(WHERE))), np.zeros((sites, len(WHERE))), np.zeros(sites)
    path = np.zeros(len(job.block_class)) if explained is None else path_of_blocks(simulated, explained)
    ran = simulated.times.core >= 0
    task_sites = np.array([task.site for task in recording.tasks] or [0], np.int64)
    for kind in kinds_of(simulated):
        mine = np.flatnonzero((job.block_class == kind.number) & ran)
        one, worked = _block(kind, sites, start)
        core += one * len(mine)
        busy += worked * len(mine)
        whole = kind.mean_ns or 1.0
        on_path += one * (np.sum(path[mine]) / whole)
        places = task_sites[job.task_of[mine]]
        np.add.at(core[:, START], places, start)
        np.add.at(on_path[:, START], places, start * path[mine] / whole)
    submit = np.zeros(sites)
    np.add.at(submit, task_sites[: len(recording.tasks)], simulated.times.submitted - simulated.times.began)
    moved, flops = _work(recording)
    frame = pl.DataFrame(
        {
            "site": np.arange(sites),
            "file": [site.file for site in recording.sites],
            "line": [site.line for site in recording.sites],
            "core_ns": core.sum(1),
            "path_ns": on_path.sum(1),
            "busy_ns": busy,
            "submit_ns": submit,
            "bytes": moved,
            "flops": flops,
            "place": [WHERE[n] for n in np.argmax(core, axis=1).tolist()],
        },
        schema_overrides={"file": pl.String, "line": pl.Int64, "place": pl.String},
    )
    some = pl.any_horizontal(pl.col("core_ns", "busy_ns", "submit_ns", "bytes", "flops") > 0)
    return LineTimes(frame.filter(some), float(core.sum()), float(on_path.sum()))


def path_of_blocks(simulated: Simulated, explained: Explanation) -> Floats:
    """Of every block how long it runs on the critical path."""
    found = np.zeros(len(simulated.prepared.job.block_class))
    segments = explained.path.segments.filter(pl.col("part") == "run")
    slices = explained.work.slices[segments["row"].to_numpy()]
    first = simulated.prepared.job.first_block
    own = (slices["task"] < len(first)).to_numpy()  # not of the rank's other programs
    task, block = (slices[name].to_numpy()[own] for name in ("task", "block"))
    np.add.at(found, first[task] + block, (segments["end"] - segments["start"]).to_numpy()[own])
    return found


def _block(kind: TimedKind, sites: int, start: float) -> tuple[Floats, Floats]:
    """Of one block of a kind, without its start: core time per site and place, and busy time per site."""
    one = np.zeros((sites, len(WHERE)))
    one[:, : len(PLACES)] = kind.chain.by_site(sites)
    worked = np.bincount(kind.lane.site, kind.lane.end - kind.lane.start, sites).astype(np.float64)
    inside = kind.mean_ns - start
    if kind.stream.barriers and inside > kind.timing.duration:  # it waits for the slowest of its launch
        barriers = np.flatnonzero(kind.stream.code[:, 0] == BARRIER)
        one[kind.stream.sites[barriers], MEET] += (inside - kind.timing.duration) / len(barriers)
        return one, worked
    stretch = inside / kind.timing.duration if kind.timing.duration else 0.0
    return one * stretch, worked * stretch


def _work(recording: Recording) -> tuple[Ints, Ints]:
    """Bytes of GM and FLOPs of every site over all blocks, counted as `tile/record/summary.py` does."""
    kinds = [BY_NAME[buffer.dtype] for buffer in recording.buffers]
    bodies = [_body_work(body) for body in recording.bodies]
    moved, flops = np.zeros(len(recording.sites), np.int64), np.zeros(len(recording.sites), np.int64)
    for task in recording.tasks:
        for group in task.groups:
            elements, work = bodies[group.body]
            blocks = len(group.blocks)
            for (site, argument), count in elements.items():
                moved[site] += kinds[task.arguments[argument].buffer].size(count * blocks)
            for site, count in work.items():
                flops[site] += count * blocks
    return moved, flops


def _body_work(body: Body) -> tuple[Counter[tuple[int, int]], Counter[int]]:
    """Elements moved by site and argument, FLOPs by site, of one block."""
    moved: Counter[tuple[int, int]] = Counter()
    flops: Counter[int] = Counter()
    for op, counts in ops_of(body):
        times = prod(counts)
        if op.flops:
            flops[op.site] += times * op.flops
        for access in op.accesses:
            moved[op.site, access.argument] += times * prod(access.shape)
    return moved, flops


NAME, *TIMES = busy_idle.KERNELS
PER_KERNEL = Columns(
    "simulate.per_kernel",
    "A kernel, the one with most core time first. A block on a cube and two vector cores has three slices.",
    replace(NAME, json=""),
    Column("tasks", COUNT, "submitted"),
    Column("blocks", COUNT, "run"),
    *TIMES,
    Column("mean_interval_ns", SPAN, "where 80% of measured means lie", title="mean, 80%,"),
)


def per_kernel(simulated: Simulated, busy: Busy, spread: Mapping[str, tuple[float, float]] | None = None) -> Table:
    """`spread`: of a kernel the ends of its interval as multiples of its mean, where a capture makes them its own."""
    tasks = [task for one in simulated.every for task in one.program.recording.tasks]
    counts = pl.DataFrame(
        {"kernel": [t.kernel for t in tasks], "blocks": np.concatenate([one.job.blocks for one in simulated.every])},
        schema={"kernel": pl.String, "blocks": pl.Int64},
    )
    launched = counts.group_by("kernel").agg(pl.len().alias("tasks"), pl.col("blocks").sum())
    cores = {task.kernel: kernel_quantity((task.core,)) for task in tasks}
    likely = {one: time_estimate(1.0, one, simulated.bound.regime) for one in set(cores.values())}
    ends = {name: (likely[one].low, likely[one].high) for name, one in cores.items()} | dict(spread or {})
    factors = [ends[name] for name in busy.kernels["kernel"].to_list()]
    low, high = ((pl.col("mean_ns") * pl.Series([pair[n] for pair in factors], dtype=pl.Float64)) for n in range(2))
    low, high = (end.round().cast(pl.Int64) for end in (low, high))
    kernels = busy.kernels.join(launched, on="kernel", how="left", maintain_order="left")
    return Table(PER_KERNEL, kernels.with_columns(pl.concat_list(low, high).alias("mean_interval_ns")))
