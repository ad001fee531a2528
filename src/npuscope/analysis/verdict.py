"""What bounds a run, in words, with the numbers that say so.

With edges, the critical path is split into four shares: waits for the scheduler (dispatch), runs that waited for their
core (core), runs that waited for a producer or for nothing (dependency), and the run after the last start (tail).
They add up to the window but for its edges. The largest is the bound. Where a unit is busy BUSY_ENOUGH, its cores are
the bound whatever the path says; that is called bandwidth where counters say that cores moved data longer than they
computed, and communication or copy where exposed collectives or copies take longer than all compute. Without edges the
shares of idle time decide, as far as they can.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from npuscope.analysis.forms import duration, percent, short
from npuscope.analysis.graph_capture import graph_capture
from npuscope.analysis.hidden_exposed import Communication, Copies, when_ran
from npuscope.analysis.ledger import Scheduling
from npuscope.analysis.path import CriticalPath
from npuscope.analysis.readiness import no_dependencies
from npuscope.analysis.waits import SCHEDULING
from npuscope.analysis.work import CORES, Work

BUSY_ENOUGH = 0.7  # of a unit's core time, or of the window on streams: more idle time than this leaves is the bound
FEW_IN_FLIGHT = 0.5  # tasks in flight per core
MOVES = ("aic_mte2_ratio", "aiv_mte2_ratio")
COMPUTES = ("aic_mac_ratio", "aiv_vec_ratio")


@dataclass(frozen=True)
class Verdict:
    """`bound`: dispatch, dependency, core, bandwidth, communication, copy, tail, or unknown where the capture cannot
    tell."""

    bound: str
    sentence: str
    numbers: dict[str, float]

    def __str__(self) -> str:
        return self.sentence


def verdict_of(
    work: Work, ledger: Scheduling, path: CriticalPath, comm: Communication | None = None, copies: Copies | None = None
) -> Verdict:
    """The bound of a run from its ledger and its path."""
    if len(work.lane) == 0 or work.wall == 0:
        return Verdict("unknown", "Nothing ran in this window.", {})
    if (recording := graph_capture(work.trace)) is not None and recording.is_all:
        where = "what bounds the run is told by the capture that replays the graph"
        return Verdict("unknown", f"unknown: {recording}; {where}.", {"recorded": recording.recorded})
    unit, used = _busiest(work, path)
    if path.kind == "chain" and used < BUSY_ENOUGH:
        return _from_path(work, ledger, path)
    numbers = {"busy": used, "running": path.by_part().get("run", 0) / work.wall}
    if used >= BUSY_ENOUGH and (exposed := _not_compute(work, comm, copies)) is not None:
        return replace(exposed, numbers=numbers | exposed.numbers)
    return _from_idle(work, ledger, path, numbers, unit)


def _not_compute(work: Work, comm: Communication | None, copies: Copies | None) -> Verdict | None:
    """Communication or copies that nothing covers and that are longer than all compute."""
    exposed = {
        "communication": comm.exposed_ns if comm is not None else 0,
        "copy": copies.exposed_ns if copies is not None else 0,
    }
    bound = max(exposed, key=lambda name: exposed[name])
    compute = when_ran(work, "task").length
    if exposed[bound] <= compute:
        return None
    told = "exposed communication is" if bound == "communication" else "exposed copies are"
    share = exposed[bound] / work.wall
    what = f"{told} {percent(share)} of the window, compute {percent(compute / work.wall)}"
    return Verdict(bound, f"{bound}-bound: {what}.", {"exposed": share})


def _busiest(work: Work, path: CriticalPath) -> tuple[str, float]:
    """The unit of cores that is busy the largest share of its time; on streams the device, while anything runs."""
    busy = work.busy.lengths(work.lanes.height)
    named = {
        unit: float(busy[work.units == unit].sum() / (work.wall * (work.units == unit).sum()))
        for unit in CORES
        if (work.units == unit).any()
    }
    where = "the device" if np.isin(work.units, ("stream", "link")).any() else "some thread"
    anything = (where, path.by_part().get("run", 0) / work.wall)
    return max(named.items(), key=lambda item: item[1], default=anything)


def _from_path(work: Work, ledger: Scheduling, path: CriticalPath) -> Verdict:
    parts, links, wall = path.by_part(), path.by_link(), work.wall
    last_start = int(np.max(work.start))
    run = path.segments.filter(pl.col("part") == "run")
    in_tail = int(run["end"][-1]) - max(int(run["start"][-1]), last_start) if run.height else 0
    shares = {
        "dispatch": sum(parts.get(reason, 0) for reason in (*SCHEDULING, "starved")) / wall,
        "core": links.get("core", 0) / wall,
        "dependency": (links.get("dependency", 0) + links.get("none", 0)) / wall,
        "tail": in_tail / wall,
    }
    # the tail's run is taken out of the link it came by
    last = run["link"][-1] if run.height else "none"
    shares["core" if last == "core" else "dependency"] -= shares["tail"]
    if not links.get("dependency"):  # nobody waited for a producer: one long task, or work that queued for its cores
        shares["tail" if path.slices == 1 else "core"] += shares["dependency"]
        shares["dependency"] = 0.0
    bound = max(shares, key=lambda name: shares[name])
    counters = _counters(work) if bound == "core" else {}
    if counters:
        bound = _core_or_bandwidth(counters)
    told = {
        "dispatch": f"waits for the scheduler are {percent(shares['dispatch'])} of the critical path "
        f"({_reasons(parts, wall)}){_flight(ledger)}",
        "core": f"{percent(shares['core'])} of the critical path runs back to back on busy cores; {_top(path)}",
        "bandwidth": f"{percent(shares['core'])} of the critical path runs on busy cores{_counters_told(counters)}",
        "dependency": f"{percent(shares['dependency'])} of the critical path is a chain of tasks that waited for one "
        f"another ({path.slices:,} slices); {_top(path)}",
        "tail": f"{percent(shares['tail'])} of the window is the run of one last task; {_top(path)}",
    }
    return Verdict(bound, f"{bound}-bound: {told[bound]}.", shares | counters)


def _from_idle(work: Work, ledger: Scheduling, path: CriticalPath, numbers: dict[str, float], unit: str) -> Verdict:
    parts, wall = path.by_part(), work.wall
    used, any_running = numbers["busy"], numbers["running"]
    if used >= BUSY_ENOUGH:
        counters = _counters(work)
        bound = _core_or_bandwidth(counters)
        why = _counters_told(counters) + (f"; {_top(path)}" if path.kind == "chain" else "")
        return Verdict(bound, f"{bound}-bound: {unit} is busy {percent(used)} of the window{why}.", numbers | counters)
    if not work.on_cores:
        launch = parts.get("dispatch", 0) / wall
        if launch > 1 - any_running - launch:
            what = f"the device idles {percent(launch)} of the window because the host has not launched anything yet"
            return Verdict("dispatch", f"dispatch-bound: {what}.", {**numbers, "dispatch": launch})
    if ledger.in_flight is not None and ledger.in_flight < FEW_IN_FLIGHT * ledger.cores:
        numbers |= {"in_flight": ledger.in_flight, "cores": ledger.cores, "overhead": ledger.overhead or 0.0}
        caution = f"{no_dependencies(work.trace)}, so waiting for producers is part of this"
        return Verdict("dispatch", f"dispatch-bound: {_flight(ledger).removeprefix('; ')} ({caution}).", numbers)
    missing = no_dependencies(work.trace)
    if work.on_cores and not ledger.stamped:
        missing = "neither edges nor dispatch times" if work.trace.edges.is_empty() else f"{missing}, no dispatch times"
    sentence = f"{unit} is busy {percent(used)} of the window, and the capture has {missing} to say why not more."
    return Verdict("unknown", f"unknown: {sentence}", numbers)


def _reasons(parts: dict[str, int], wall: int) -> str:
    named = [(reason, parts.get(reason, 0)) for reason in (*SCHEDULING, "starved")]
    return ", ".join(f"{reason} {percent(ns / wall)}" for reason, ns in named if ns)


def _flight(ledger: Scheduling) -> str:
    if ledger.in_flight is None or not ledger.tasks:
        return ""
    overhead = "" if ledger.overhead is None else f", {percent(ledger.overhead)} of dispatch→finish is not run"
    return (
        f"; {ledger.in_flight:.1f} tasks in flight on {ledger.cores} cores, one task per "
        f"{duration(ledger.ns_per_task)}{overhead}"
    )


def _core_or_bandwidth(counters: dict[str, float]) -> str:
    return "bandwidth" if counters and counters["moving"] > counters["computing"] else "core"


def _counters(work: Work) -> dict[str, float]:
    """Of the time of kernels with counters, the shares in which a core moved data in and in which it computed; and
    the share of core time that has counters. Nothing where none has."""
    if not all(column in work.trace.slices.columns for column in (*MOVES, *COMPUTES)):
        return {}
    ratio = pl.col(*MOVES, *COMPUTES).cast(pl.Float64, strict=False)
    told = work.told(*MOVES, *COMPUTES).lazy().filter(pl.col("kind") == "task").select("dur", ratio).collect()
    told = told.drop_nulls()
    whole = int(told["dur"].sum())
    if whole == 0:
        return {}
    weighted = [(pl.max_horizontal(*columns) * pl.col("dur")).sum() / whole for columns in (MOVES, COMPUTES)]
    moving, computing = told.select(weighted[0].alias("moving"), weighted[1].alias("computing")).row(0)
    return {"moving": float(moving), "computing": float(computing), "counted": whole / int(work.slices["dur"].sum())}


def _counters_told(counters: dict[str, float]) -> str:
    if not counters:
        return ""
    moving, computing, counted = (percent(counters[name]) for name in ("moving", "computing", "counted"))
    return f"; of the {counted} of core time that has counters, moving data in takes {moving} and computing {computing}"


def _top(path: CriticalPath) -> str:
    """The kernel that runs longest on the path."""
    kernels = path.by_kernel()
    name, share = kernels.row(0, named=True)["kernel"], float(kernels["share"][0])
    return f"`{short(name, 48)}` is {percent(share)} of the path"
