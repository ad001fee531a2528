"""A profiler root: a folder with the captures of many ranks, read as one Trace."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import polars as pl

from npuscope.base import progress
from npuscope.base.errors import BadInput, UnknownFormat
from npuscope.trace import schema
from npuscope.trace.core import WHOLE_DEVICE, Trace, combine
from npuscope.trace.formats import ROOT, EventReader, Reader, is_capture, reader_of, readers
from npuscope.trace.intervals import largest

# one rank's profiler output holds the same run several times: the first of these formats whose file is there is read
ONE_RUN = ("ascend-db", "kernel_details", "trace_view", "xplane", "xla-viewer")
# tables and notes the profilers put beside their captures
COMPANIONS = re.compile(
    r"^(step_trace_time|op_statistic|api_statistic|communication|task_time|profiler_|analysis|deps|name_map|memory_|"
    r"operator_|l2_cache|data_preprocess|npu_|README|perfetto|forward\.json)"
)
_RANK = re.compile(r"[0-9]{1,9}$")
_RANK_IN_NAME = re.compile(r"rank[-_]?([0-9]{1,9})(?![0-9])", re.IGNORECASE)
_WORKER = re.compile(r"(.+)\.[0-9]{10,20}\.pt\.trace\.json")  # torch.profiler: the process, then the time
_DEEPEST = 5
MOST_NAMED = 8  # captures in a sentence
MOST_FILES = 50_000  # looked at before giving up: a disk is no profiler root
TASKS_PER_RANK = 1 << 44  # task ids of one rank stay below this: simpler's need 40 bits


class Capture(NamedTuple):
    """A capture inside a folder and the rank its place says, if it does."""

    path: Path
    rank: int | None


@dataclass
class FolderCaptures:
    """What is below a folder: its captures, one per rank; files that seem to be captures but cannot be opened, with the
    reason; and how many files are there that nobody here knows, by their endings."""

    root: Path
    captures: list[Capture] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)
    strange: Counter[str] = field(default_factory=Counter)

    @staticmethod
    def below(root: Path) -> FolderCaptures:
        """In the order of ranks or names."""
        found = FolderCaptures(root)
        _Search(found).walk(root, 0)
        found.captures.sort(key=lambda c: (c.rank is None, c.rank or 0, str(c.path)))
        return found

    def nothing(self) -> UnknownFormat:
        """The error for a folder without captures."""
        inside = [self.root, *(child for child in self.root.iterdir() if child.is_dir())]
        what, remedy = "no capture in this folder", "`npuscope formats` lists what a folder may hold."
        if self.broken:
            name, reason = next(iter(self.broken.items()))
            what += f"; {name}: {reason}"
        elif any(folder.name.startswith("PROF_") for folder in inside):
            what = "raw data of msprof (PROF_*), which is not read"
            remedy = "Export it on a machine with CANN: `msprof --export=on --output=PROF_…`."
        return UnknownFormat(what, path=self.root, remedy=remedy)

    def several(self) -> UnknownFormat:
        """The error for captures that are no ranks of one run."""
        names = [str(capture.path.relative_to(self.root)) for capture in self.captures]
        shown = ", ".join([*names[:MOST_NAMED], *(["…"] if len(names) > MOST_NAMED else [])])
        return UnknownFormat(
            f"{len(names)} captures, and nothing says that they are ranks of one run: {shown}", path=self.root,
            remedy="Name one of them, or two for `npuscope compare`; ranks are called rank0, rank1 and so on.",
        )  # fmt: skip

    def alike(self) -> bool:
        """Whether their places differ by numbers alone, as those of ranks do, or are hosts of one run of XLA."""
        places = (str(capture.path.relative_to(self.root)) for capture in self.captures)
        return len({re.sub(r"PROF_\w+|[0-9]+|[^/]+(?=\.xplane\.pb$)", "#", place) for place in places}) == 1


def captures_of(path: Path) -> FolderCaptures:
    """The captures a path stands for: itself, or those below a folder, with the rank each one's place says."""
    if reader_of(path).name != ROOT:
        return FolderCaptures(path, [Capture(path, None)])
    found = FolderCaptures.below(path)
    if not found.captures:
        raise found.nothing()
    return found


class _Search:
    def __init__(self, found: FolderCaptures) -> None:
        self._found = found
        self._visited: set[Path] = set()
        self._looked_at = 0
        formats = {reader.name: reader.files for kind in (Reader, EventReader) for reader in readers(kind)}
        self._preferred = [pattern for name in ONE_RUN for pattern in formats[name]]

    def walk(self, folder: Path, depth: int) -> None:
        if folder.resolve() in self._visited:  # a link that leads back
            return
        self._visited.add(folder.resolve())
        if depth and (folder / "forward.json").is_file():  # passes that `npuscope forward` exported from captures
            return
        named = [path for pattern in self._preferred for path in sorted(folder.glob(pattern))]
        preferred = [path for path in named if self._readable(path)]
        for path in named:
            if path not in preferred:  # it has a capture's name
                self._found.broken.setdefault(str(path), "not a capture npuscope knows")
        if preferred:
            # XLA writes a file per host into one folder; of others one is enough
            hosts = [path for path in preferred if path.match("*.xplane.pb")]
            for path in hosts if preferred[0] in hosts else preferred[:1]:
                self._add(path)
            for child in sorted(folder.iterdir()):  # a folder beside it that is a capture is another run
                if child.is_dir() and self._readable(child) and not COMPANIONS.match(child.name):
                    self._add(child)
            return
        for child in sorted(folder.iterdir()):
            self._looked_at += 1
            if self._looked_at > MOST_FILES:
                what = f"more than {MOST_FILES:,} files below this folder"
                raise UnknownFormat(what, path=self._found.root, remedy="Name the folder the profiler wrote.")
            if child.name.startswith(".") or COMPANIONS.match(child.name):
                continue
            if self._readable(child):
                self._add(child)
            elif child.is_dir() and depth < _DEEPEST:
                try:
                    self.walk(child, depth + 1)
                except OSError as error:
                    self._found.broken[str(child)] = error.strerror or str(error)
            elif child.is_file() and str(child) not in self._found.broken:
                self._found.strange[f"file of a profiler root '*{child.suffix[:20]}'"] += 1

    def _readable(self, path: Path) -> bool:
        try:
            if not path.is_dir() and not (path.is_file() and path.stat().st_size):
                return False  # a device, a pipe, or one of the kernel's files, which may not answer when opened
            return is_capture(path)
        except (BadInput, OSError) as error:
            self._found.broken[str(path)] = getattr(error, "what", str(error))
            return False

    def _add(self, path: Path) -> None:
        self._found.captures.append(Capture(path, _rank_of(self._found.root, path)))


def _rank_of(root: Path, path: Path) -> int | None:
    """profiler_info_<rank>.json beside the output, else `rank<N>` in the path below the root."""
    for folder in (path.parent, path.parent.parent):
        infos = sorted(folder.glob("profiler_info_*.json"))
        if len(infos) == 1 and (rank := _RANK.match(infos[0].stem.rpartition("_")[2])):
            return int(rank[0])
    numbers = _RANK_IN_NAME.findall(str(path.relative_to(root.parent)))
    return int(numbers[-1]) if numbers else None


def read(root: Path) -> Trace:
    """Every capture of the folder as one Trace; lanes carry their rank, tasks of one rank get ids of their own."""
    found = FolderCaptures.below(root)
    if not found.captures:
        raise found.nothing()
    if len(found.captures) == 1 and found.captures[0].rank is None:
        trace = _read_one(found.captures[0].path)
    else:
        parts = _ranked(found)
        if not parts:
            raise found.nothing()
        trace = merge(sorted(parts, key=lambda part: part[0]))
    meta = trace.meta.plus(notes={"files_not_read": found.broken}, unknown=found.strange)
    return replace(trace, meta=replace(meta, notes={name: value for name, value in meta.notes.items() if value}))


def _read_one(path: Path) -> Trace:
    return reader_of(path).read(path)


def _ranked(found: FolderCaptures) -> list[tuple[int, Trace]]:
    """Every capture as a trace whose lanes have a rank of their own, by its first rank.

    One that cannot be read is added to those broken: the others are still there. Two that claim one rank are of
    several runs, which no number may mix.
    """
    parts: list[tuple[int, Trace]] = []
    claims: dict[int | str, list[Path]] = {}  # who claims a rank, or writes as one process
    unnumbered: list[Trace] = []
    for number, capture in enumerate(found.captures):
        progress.report(f"reading {found.root.name}", number, len(found.captures))
        try:
            trace = _read_one(capture.path)
        except (BadInput, OSError) as error:
            found.broken[str(capture.path)] = error.what if isinstance(error, BadInput) else str(error)
            continue
        own = trace.lanes["rank"].drop_nulls().unique().sort().to_list()
        ranks = own or ([] if capture.rank is None else [capture.rank])
        worker = _WORKER.match(capture.path.name)
        for claim in ranks or ([str(capture.path.with_name(worker[1]))] if worker else []):
            claims.setdefault(claim, []).append(capture.path)
        if len(ranks) > 1:
            parts.append((ranks[0], trace))
        elif ranks:
            parts.append((ranks[0], _of_rank(trace, ranks[0])))
        else:
            unnumbered.append(trace)
    if several := [paths for paths in claims.values() if len(paths) > 1]:
        raise _several_runs(found.root, max(several, key=len))
    if len(unnumbered) > 1 and not claims and not found.alike():
        raise found.several()
    taken = {claim for claim in claims if isinstance(claim, int)}
    for trace in unnumbered:
        free = min(set(range(len(taken) + 1)) - taken)
        taken.add(free)
        parts.append((free, _of_rank(trace, free)))
    return parts


def _of_rank(trace: Trace, rank: int) -> Trace:
    return replace(trace, lanes=trace.lanes.with_columns(pl.lit(rank, dtype=pl.Int32).alias("rank")))


def _several_runs(root: Path, paths: list[Path]) -> BadInput:
    """Captures of one rank: of each the outermost folder that tells it from the others, or its own name."""
    below = [path.relative_to(root).parts for path in paths]
    depth = next((n for n in range(min(map(len, below))) if len({parts[n] for parts in below}) == len(below)), -1)
    names = [str(root.joinpath(*parts[: depth + 1] if depth >= 0 else parts)) for parts in below]
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    first, second = names[:2]
    return BadInput(
        f"it holds {len(names)} runs, since each has the same rank: {', '.join(names[:4])}{more}",
        path=root,
        remedy=f"Name one of them, or hold them against one another: `npuscope compare {first} {second}`.",
    )


def merge(parts: list[tuple[int, Trace]]) -> Trace:
    """Traces with their ranks, side by side."""
    slices, lanes, edges, counters = [], [], [], []
    first_lane = 0
    highest = max(largest(trace.slices["task"].fill_null(0).to_numpy()) for _, trace in parts)
    stride = max(TASKS_PER_RANK, 1 << highest.bit_length())
    if stride * len(parts) >= 2**63:
        raise BadInput(f"task ids up to {highest} of {len(parts)} captures do not fit 63 bits")
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
    """Among several devices a counter of the whole device needs a lane, to say of which."""
    if trace.counters["lane"].null_count() == 0:
        return trace
    number = max(trace.lanes["lane"].to_list(), default=-1) + 1
    devices = trace.lanes["device"].drop_nulls().unique()
    place = {"lane": number, "name": WHOLE_DEVICE, "unit": "counter", "rank": rank}
    lane = pl.DataFrame([{**place, "device": devices[0] if len(devices) == 1 else None}])
    lanes = pl.concat([trace.lanes, schema.conform(lane, schema.LANES)], how="diagonal_relaxed")
    counters = trace.counters.with_columns(pl.col("lane").fill_null(pl.lit(number, dtype=pl.UInt32)))
    return replace(trace, lanes=lanes, counters=counters)


READER = Reader(ROOT, "a folder with the captures of many ranks", lambda sample: sample.is_folder, read, fallback=True)
