"""A profiler root: a folder with the captures of many ranks, read as one Trace."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from npuscope.errors import UnknownFormat
from npuscope.trace import progress
from npuscope.trace.core import Trace
from npuscope.trace.meta import Meta, add_counts

# one rank's profiler output holds the same run several times: the first of these that is there is read
PREFERRED = (
    "ascend_pytorch_profiler*.db",
    "msprof_*.db",
    "kernel_details.csv",
    "op_summary*.csv",
    "trace_view.json",
    "msprof_*.json",
)
# tables and notes the profilers put beside their captures
COMPANIONS = re.compile(
    r"^(step_trace_time|op_statistic|api_statistic|communication|task_time|profiler_|analysis|deps|name_map|memory_|"
    r"operator_|l2_cache|data_preprocess|npu_|README|perfetto)"
)
_RANK_IN_NAME = re.compile(r"rank[-_]?(\d+)", re.IGNORECASE)
_DEEPEST = 5
TASKS_PER_RANK = 1 << 44  # task ids of one rank stay below this: simpler's need 40 bits


class Capture(NamedTuple):
    """A capture inside a root and the rank its place tells, if it does."""

    path: Path
    rank: int | None


def captures_in(root: Path, is_capture: Callable[[Path], bool]) -> list[Capture]:
    """The captures below a folder, one per rank, in the order of their ranks or names."""
    found = _walk(root, root, is_capture, 0)
    return sorted(found, key=lambda c: (c.rank is None, c.rank or 0, str(c.path)))


def _walk(root: Path, folder: Path, is_capture: Callable[[Path], bool], depth: int) -> list[Capture]:
    preferred = [path for pattern in PREFERRED for path in sorted(folder.glob(pattern)) if is_capture(path)]
    if preferred:
        return [Capture(preferred[0], _rank_of(root, preferred[0]))]
    found = []
    for child in sorted(folder.iterdir()):
        if child.name.startswith(".") or COMPANIONS.match(child.name):
            continue
        if is_capture(child):
            found.append(Capture(child, _rank_of(root, child)))
        elif child.is_dir() and depth < _DEEPEST:
            found += _walk(root, child, is_capture, depth + 1)
    return found


def _rank_of(root: Path, path: Path) -> int | None:
    """profiler_info_<rank>.json beside the output, else `rank<N>` in the path below the root."""
    for folder in (path.parent, path.parent.parent):
        infos = sorted(folder.glob("profiler_info_*.json"))
        if len(infos) == 1 and infos[0].stem.rpartition("_")[2].isdigit():
            return int(infos[0].stem.rpartition("_")[2])
    numbers = _RANK_IN_NAME.findall(str(path.relative_to(root.parent)))
    return int(numbers[-1]) if numbers else None


def read(root: Path, captures: list[Capture], read_one: Callable[[Path], Trace]) -> Trace:
    """Every capture of the root as one Trace; lanes carry their rank, tasks stay apart."""
    if not captures:
        raise UnknownFormat(
            "no capture in this folder",
            path=root,
            remedy="See `npuscope formats` for what a folder may hold.",
        )
    parts: list[tuple[int, Trace]] = []
    taken: set[int] = set()
    collisions = 0
    for number, capture in enumerate(captures):
        progress.report(f"reading {root.name}", number, len(captures))
        trace = read_one(capture.path)
        told = trace.lanes["rank"].drop_nulls()
        wanted = int(told[0]) if len(told) else capture.rank
        collisions += wanted in taken
        rank = wanted if wanted is not None and wanted not in taken else min(set(range(len(taken) + 1)) - taken)
        taken.add(rank)
        parts.append((rank, trace))
    if len(parts) == 1 and captures[0].rank is None:
        return parts[0][1]
    trace = merge(sorted(parts, key=lambda part: part[0]))
    if collisions:
        notes = {**trace.meta.notes, "rank_collisions": collisions}
        trace = replace(trace, meta=replace(trace.meta, notes=notes))
    return trace


def merge(parts: list[tuple[int, Trace]]) -> Trace:
    """Traces of several ranks side by side."""
    slices, lanes, edges = [], [], []
    first_lane = 0
    for number, (rank, trace) in enumerate(parts):
        shift = number * TASKS_PER_RANK
        slices.append(trace.slices.with_columns(pl.col("lane") + first_lane, pl.col("task", "duplicate_of") + shift))
        lanes.append(trace.lanes.with_columns(pl.col("lane") + first_lane, pl.lit(rank, dtype=pl.Int32).alias("rank")))
        places = [c for c in ("src_lane", "dst_lane") if c in trace.edges.columns]
        edges.append(trace.edges.with_columns(pl.col("src", "dst") + shift, *(pl.col(c) + first_lane for c in places)))
        first_lane += max(trace.lanes["lane"].to_list(), default=-1) + 1
    return Trace.of(
        pl.concat(slices, how="diagonal_relaxed"),
        pl.concat(lanes, how="diagonal_relaxed"),
        _merged_meta([(rank, trace.meta) for rank, trace in parts]),
        pl.concat(edges, how="diagonal_relaxed"),
    )


def _merged_meta(metas: list[tuple[int, Meta]]) -> Meta:
    kinds = sorted({meta.format for _, meta in metas})
    clocks = {meta.clock for _, meta in metas}
    return Meta(
        format=f"profiler-root ({', '.join(kinds)})",
        files=tuple(file for _, meta in metas for file in meta.files),
        device=next((meta.device for _, meta in metas if meta.device), None),
        clock=clocks.pop() if len(clocks) == 1 else "several",
        records=sum(meta.records for _, meta in metas),
        merged=add_counts(*(meta.merged for _, meta in metas)),
        dropped=add_counts(*(meta.dropped for _, meta in metas)),
        marked=add_counts(*(meta.marked for _, meta in metas)),
        repaired=add_counts(*(meta.repaired for _, meta in metas)),
        notes={"ranks": {str(rank): dict(meta.notes) for rank, meta in metas}},
    )
