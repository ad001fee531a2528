"""A profiler root: a folder with the captures of many ranks, read as one Trace."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from npuscope.base import progress
from npuscope.base.errors import BadInput, UnknownFormat
from npuscope.trace import schema
from npuscope.trace.core import WHOLE_DEVICE, Trace, add_counts, combine
from npuscope.trace.intervals import largest

# one rank's profiler output holds the same run several times: the first of these that is there is read
PREFERRED = (
    "ascend_pytorch_profiler*.db",
    "msprof_*.db",
    "kernel_details.csv",
    "op_summary*.csv",
    "task_time*.csv",
    "trace_view.json",
    "msprof_*.json",
)
# tables and notes the profilers put beside their captures
COMPANIONS = re.compile(
    r"^(step_trace_time|op_statistic|api_statistic|communication|task_time|profiler_|analysis|deps|name_map|memory_|"
    r"operator_|l2_cache|data_preprocess|npu_|README|perfetto|forward\.json)"
)
_RANK = re.compile(r"[0-9]{1,9}$")
_RANK_IN_NAME = re.compile(r"rank[-_]?([0-9]{1,9})(?![0-9])", re.IGNORECASE)
_DEEPEST = 5
MOST_FILES = 50_000  # looked at before giving up: a disk is no profiler root
TASKS_PER_RANK = 1 << 44  # task ids of one rank stay below this: simpler's need 40 bits


class Capture(NamedTuple):
    """A capture inside a root and the rank its place tells, if it does."""

    path: Path
    rank: int | None


class Found(NamedTuple):
    """The captures below a folder, one per rank, the files that seem to be captures but cannot be opened, and how
    many files are there that nobody here knows, by their endings."""

    captures: list[Capture]
    broken: dict[str, str]
    strange: dict[str, int]


def captures_in(root: Path, is_capture: Callable[[Path], bool]) -> Found:
    """What is below a folder, in the order of ranks or names. `is_capture` raises for what is broken."""
    search = _Search(root, is_capture)
    captures = search.walk(root, 0)
    captures = sorted(captures, key=lambda c: (c.rank is None, c.rank or 0, str(c.path)))
    return Found(captures, search.broken, dict(search.strange))


class _Search:
    def __init__(self, root: Path, is_capture: Callable[[Path], bool]) -> None:
        self._root, self._is_capture = root, is_capture
        self._seen: set[Path] = set()
        self.broken: dict[str, str] = {}
        self.strange: Counter[str] = Counter()
        self._looked_at = 0

    def walk(self, folder: Path, depth: int) -> list[Capture]:
        if folder.resolve() in self._seen:  # a link that leads back
            return []
        self._seen.add(folder.resolve())
        if depth and (folder / "forward.json").is_file():  # passes that `npuscope forward` exported from captures
            return []
        named = [path for pattern in PREFERRED for path in sorted(folder.glob(pattern))]
        preferred = [path for path in named if self._readable(path)]
        for path in named:
            if path not in preferred:  # it has a capture's name
                self.broken.setdefault(str(path), "not a capture npuscope knows")
        if preferred:
            return [self._capture(preferred[0])]
        found = []
        for child in sorted(folder.iterdir()):
            self._looked_at += 1
            if self._looked_at > MOST_FILES:
                what = f"more than {MOST_FILES:,} files below this folder"
                raise UnknownFormat(what, path=self._root, remedy="Name the folder the profiler wrote.")
            if child.name.startswith(".") or COMPANIONS.match(child.name):
                continue
            if self._readable(child):
                found.append(self._capture(child))
            elif child.is_dir() and depth < _DEEPEST:
                found += self._walk_or_note(child, depth + 1)
            elif child.is_file() and str(child) not in self.broken:
                self.strange[f"file of a profiler root '*{child.suffix[:20]}'"] += 1
        return found

    def _walk_or_note(self, folder: Path, depth: int) -> list[Capture]:
        try:
            return self.walk(folder, depth)
        except OSError as error:
            self.broken[str(folder)] = error.strerror or str(error)
            return []

    def _readable(self, path: Path) -> bool:
        try:
            if not path.is_dir() and not (path.is_file() and path.stat().st_size):
                return False  # a device, a pipe, or one of the kernel's files, which may not answer when opened
            return self._is_capture(path)
        except (BadInput, OSError) as error:
            self.broken[str(path)] = getattr(error, "what", str(error))
            return False

    def _capture(self, path: Path) -> Capture:
        return Capture(path, _rank_of(self._root, path))


def _rank_of(root: Path, path: Path) -> int | None:
    """profiler_info_<rank>.json beside the output, else `rank<N>` in the path below the root."""
    for folder in (path.parent, path.parent.parent):
        infos = sorted(folder.glob("profiler_info_*.json"))
        if len(infos) == 1 and (told := _RANK.match(infos[0].stem.rpartition("_")[2])):
            return int(told[0])
    numbers = _RANK_IN_NAME.findall(str(path.relative_to(root.parent)))
    return int(numbers[-1]) if numbers else None


def nothing_in(root: Path, found: Found) -> UnknownFormat:
    """The error for a folder without captures."""
    what = "no capture in this folder"
    if found.broken:
        name, reason = next(iter(found.broken.items()))
        what += f"; {name}: {reason}"
    elif foreign := foreign_folder(root):
        return UnknownFormat(f"{foreign.what}, which is not read", path=root, remedy=foreign.remedy)
    return UnknownFormat(what, path=root, remedy="`npuscope formats` lists what a folder may hold.")


def read(root: Path, found: Found, read_one: Callable[[Path], Trace]) -> Trace:
    """Every capture of the root as one Trace; lanes carry their rank, tasks stay apart."""
    captures, broken = found.captures, dict(found.broken)
    if not captures:
        raise nothing_in(root, found)
    collisions = 0
    if len(captures) == 1 and captures[0].rank is None:
        trace = read_one(captures[0].path)
    else:
        parts, collisions = _ranked(root, captures, read_one, broken)
        if not parts:
            raise nothing_in(root, Found([], broken, {}))
        trace = merge(sorted(parts, key=lambda part: part[0]))
    notes = {**trace.meta.notes, "rank_collisions": collisions, "files_not_read": broken}
    unknown = add_counts(trace.meta.unknown, found.strange)
    meta = replace(trace.meta, unknown=unknown, notes={name: value for name, value in notes.items() if value})
    return replace(trace, meta=meta)


def _ranked(
    root: Path, captures: list[Capture], read_one: Callable[[Path], Trace], broken: dict[str, str]
) -> tuple[list[tuple[int, Trace]], int]:
    """Every capture as a trace whose lanes have a rank of their own, by its first rank; and how many were taken.

    One that cannot be read is added to `broken`: the others are still there.
    """
    parts: list[tuple[int, Trace]] = []
    taken: set[int] = set()
    collisions = 0
    for number, capture in enumerate(captures):
        progress.report(f"reading {root.name}", number, len(captures))
        try:
            trace = read_one(capture.path)
        except (BadInput, OSError) as error:
            broken[str(capture.path)] = error.what if isinstance(error, BadInput) else str(error)
            continue
        told = trace.lanes["rank"].drop_nulls().unique().sort().to_list()
        if len(told) > 1:  # itself a trace of many ranks, which move up together where one is taken
            clashes = len(taken & set(told))
            shift = max(taken) + 1 if clashes else 0
            collisions += clashes
            taken |= {rank + shift for rank in told}
            parts.append((told[0] + shift, _with_ranks(trace, pl.col("rank") + shift)))
            continue
        wanted = int(told[0]) if told else capture.rank
        collisions += wanted in taken
        rank = wanted if wanted is not None and wanted not in taken else min(set(range(len(taken) + 1)) - taken)
        taken.add(rank)
        parts.append((rank, _with_ranks(trace, pl.lit(rank, dtype=pl.Int32))))
    return parts, collisions


def merge(parts: list[tuple[int, Trace]]) -> Trace:
    """Traces with their ranks, side by side."""
    slices, lanes, edges, counters = [], [], [], []
    first_lane = 0
    highest = max(largest(trace.slices["task"].fill_null(0).to_numpy()) for _, trace in parts)
    stride = max(TASKS_PER_RANK, 1 << highest.bit_length())
    if stride * len(parts) >= 2**63:
        raise BadInput(f"task ids up to {highest} of {len(parts)} captures cannot be kept apart in 63 bits")
    for number, (rank, one) in enumerate(parts):
        trace, shift = _with_device_lane(one, rank), number * stride
        slices.append(trace.slices.with_columns(pl.col("lane") + first_lane, pl.col("task", "duplicate_of") + shift))
        lanes.append(trace.lanes.with_columns(pl.col("lane") + first_lane))
        places = [c for c in ("src_lane", "dst_lane") if c in trace.edges.columns]
        edges.append(trace.edges.with_columns(pl.col("src", "dst") + shift, *(pl.col(c) + first_lane for c in places)))
        counters.append(trace.counters.with_columns(pl.col("lane") + first_lane))
        first_lane += max(trace.lanes["lane"].to_list(), default=-1) + 1
    return Trace.of(
        pl.concat(slices, how="diagonal_relaxed"),
        pl.concat(lanes, how="diagonal_relaxed"),
        combine(
            {f"capture {number}, rank {rank}": trace.meta for number, (rank, trace) in enumerate(parts)},
            f"profiler-root ({', '.join(sorted({trace.meta.format for _, trace in parts}))})",
        ),
        pl.concat(edges, how="diagonal_relaxed"),
        pl.concat(counters, how="diagonal_relaxed"),
    )


def _with_device_lane(trace: Trace, rank: int) -> Trace:
    """Among several devices a counter of the whole device needs a lane, to tell of which."""
    if trace.counters["lane"].null_count() == 0:
        return trace
    number = max(trace.lanes["lane"].to_list(), default=-1) + 1
    devices = trace.lanes["device"].drop_nulls().unique()
    place = {"lane": number, "name": WHOLE_DEVICE, "unit": "counter", "rank": rank}
    lane = pl.DataFrame([{**place, "device": devices[0] if len(devices) == 1 else None}])
    lanes = pl.concat([trace.lanes, schema.conform(lane, schema.LANES)], how="diagonal_relaxed")
    counters = trace.counters.with_columns(pl.col("lane").fill_null(pl.lit(number, dtype=pl.UInt32)))
    return replace(trace, lanes=lanes, counters=counters)


def _with_ranks(trace: Trace, rank: pl.Expr) -> Trace:
    return replace(trace, lanes=trace.lanes.with_columns(rank.alias("rank")))


class Foreign(NamedTuple):
    """What a file is, and what to do about it."""

    what: str
    remedy: str


XPLANE = Foreign("an XPlane of the XLA profiler", "Export it as JSON (trace_viewer's trace.json.gz) and read that.")
MAGICS = {
    b"PK\x03\x04": Foreign("a zip archive", "Unpack it and name what is inside."),
    b"PAR1": Foreign("a single Parquet file", "Name the npuscope folder it belongs to."),
    b"\x89HDF": Foreign("an HDF5 file", "If Nsight Systems wrote it, use `nsys export --type sqlite`."),
    b"\x0a": Foreign(
        "perhaps a Perfetto protobuf trace", "That is for viewers: for reports write the trace as .npu or JSON."
    ),
}
PLANES = (b"/host:", b"/device:", b"Task Environment")  # how names of XPlanes begin
# of files whose content does not tell
ENDINGS = {
    ".nsys-rep": Foreign("a report of Nsight Systems", "Export it: `nsys export --type sqlite REPORT.nsys-rep`."),
    ".qdrep": Foreign("a report of Nsight Systems", "Export it: `nsys export --type sqlite REPORT.qdrep`."),
    ".ncu-rep": Foreign("a report of Nsight Compute", "It has single kernels and no timeline: profile with nsys."),
    ".rpd": Foreign("a database of rocpd", "Use `rocprofv3 --output-format json`."),
}
RAW_FOLDER = Foreign(
    "raw data of msprof (PROF_*)", "Export it on a machine with CANN: `msprof --export=on --output=PROF_…`."
)


def foreign_file(path: Path, head: bytes) -> Foreign | None:
    """What a file that no reader knows is, if that can be told."""
    if path.suffix in ENDINGS:
        return ENDINGS[path.suffix]
    if head.startswith(b"\x0a") and any(plane in head for plane in PLANES):
        return XPLANE
    return next((foreign for magic, foreign in MAGICS.items() if head.startswith(magic)), None)


def foreign_folder(path: Path) -> Foreign | None:
    """What a folder without captures is, if that can be told."""
    inside = [path, *(child for child in path.iterdir() if child.is_dir())]
    return RAW_FOLDER if any(folder.name.startswith("PROF_") for folder in inside) else None
