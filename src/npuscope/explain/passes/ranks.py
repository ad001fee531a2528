"""Forward passes of many ranks: each capture in a process of its own or on Ray."""

from __future__ import annotations

import re
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl

from npuscope.base import progress
from npuscope.base.errors import CannotWrite, NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.jobs import Failed
from npuscope.base.pool import Workers, run
from npuscope.explain.choosing import RankTrace, split_ranks
from npuscope.explain.passes.export import CLEAN, fill, is_export, selected, with_tracks, write_pass
from npuscope.explain.passes.found import WINDOWS, Passes, passes
from npuscope.explain.passes.statistics import RankPasses, Skew, skew, statistics
from npuscope.trace import read
from npuscope.trace.core import Trace
from npuscope.trace.formats import check_target
from npuscope.trace.readers.root import captures_of
from npuscope.trace.writers.atomic import whole_folder

FILES = (".json", ".gz", ".zst", ".CSV", ".npu", ".pftrace", ".html", ".txt", ".parquet")
Piece = tuple[str, int | None, "ForwardOptions"]  # the path of a capture, its rank, what to do


@dataclass(frozen=True)
class ForwardOptions:
    """What to do with each rank's passes: which kernel stands for a layer; statistics; tables to write."""

    anchor: str | None = None
    statistics: bool = False
    select: tuple[str, ...] | None = None  # passes to show and to write; without, all are shown and clean ones written
    window: str = "full"
    out: Path | None = None  # a .csv for one pass of one rank, else a folder for all
    perfetto: Path | None = None  # a timeline of one rank, with tracks for passes and layers
    only_one: bool = False  # the capture is the only one, so that its export needs no folder per rank

    def check_one_file(self, path: str | Path, count: int) -> None:
        """Refuse to write several ranks into one file."""
        one_file = self.perfetto or (self.out if is_table(self.out) else None)
        if one_file is not None and count > 1:
            what = f"one file holds one rank, and {path} has {count}"
            raise CannotWrite(what, path=one_file, remedy="Name one capture, or a folder.")


@dataclass(frozen=True)
class ForwardRanks:
    """All ranks of a profiler root, in order, and their skew where there are several."""

    ranks: tuple[RankPasses, ...]
    not_read: dict[str, str] = field(default_factory=dict)
    written: tuple[str, ...] = ()

    @cached_property
    def skew(self) -> Skew | None:
        return skew(self.ranks) if len(self.ranks) > 1 else None

    def as_dict(self) -> dict[str, object]:
        """All passes in one list, each with its rank; what concerns a whole rank under `ranks`."""
        each = [(rank, {"rank": rank.rank, "device": rank.device}) for rank in self.ranks]
        return {
            "passes": [{**number, **row} for rank, number in each for row in rank.passes.rows()],
            "ranks": [
                {
                    **number,
                    "path": rank.path,
                    **rank.about,
                    **({} if rank.statistics is None else {"statistics": rank.statistics.as_dict()}),
                }
                for rank, number in each
            ],
            "skew": None if self.skew is None else self.skew.as_dict(),
            "not_read": self.not_read,
            "written": list(self.written),
        }


def forward(
    path: str | Path, options: ForwardOptions, engine: str = "processes", jobs: int | None = None
) -> ForwardRanks:
    """The forward passes of a capture, or of every capture of a profiler root, in processes or on Ray."""
    found = captures_of(Path(path))
    numbered = _numbered([capture.rank for capture in found.captures])
    captures = [(str(capture.path), rank) for capture, rank in zip(found.captures, numbered, strict=True)]
    options.check_one_file(path, len(captures))
    to_folder = options.out is not None and not is_table(options.out)
    if to_folder and options.out is not None and options.out.suffix in FILES:
        raise CannotWrite("passes are exported as a .csv, or as many of them in a folder", path=options.out)
    if options.perfetto is not None:
        check_target(options.perfetto)
    if options.window not in WINDOWS:
        raise NpuscopeError(f"no window '{options.window}'", remedy=f"Windows: {', '.join(WINDOWS)}.")
    options = replace(options, only_one=len(captures) == 1)
    if options.out is None or not to_folder:
        return _all(captures, options, engine, jobs, found.broken)
    with whole_folder(options.out, is_ours=is_export) as place:
        result = _all(captures, replace(options, out=place), engine, jobs, found.broken)
    written = (Path(name) for name in result.written)
    moved = (options.out / name.relative_to(place) if name.is_relative_to(place) else name for name in written)
    return replace(result, written=tuple(map(str, moved)))


def forward_of(trace: Trace, name: str, anchor: str | None = None) -> ForwardRanks:
    """The forward passes of one trace that was read already, under a name."""
    options = ForwardOptions(anchor, statistics=True)
    return ForwardRanks(tuple(_of_part(part, name, part.rank, options) for part in split_ranks(trace)))


def is_table(path: Path | None) -> bool:
    """True for an export of one pass."""
    return path is not None and re.search(r"\.csv(\.gz|\.zst)?$", path.name) is not None


def _numbered(ranks: list[int | None]) -> list[int | None]:
    """The rank of each capture; one that has none or that is taken gets the next free number."""
    taken: set[int] = set()
    for place, rank in enumerate(ranks if len(ranks) > 1 else ()):
        if rank is None or rank in taken:
            ranks[place] = rank = min(set(range(len(taken) + 1)) - taken)
        taken.add(rank)
    return ranks


def _all(
    captures: list[tuple[str, int | None]],
    options: ForwardOptions,
    engine: str,
    jobs: int | None,
    broken: dict[str, str],
) -> ForwardRanks:
    """Every capture; of several, those that cannot be cut are named and left out."""
    ranks: list[RankPasses] = []
    refused: list[NpuscopeError] = []
    pieces = [(*capture, options) for capture in captures]
    work = _one if options.only_one else _one_or_why
    for done, result in enumerate(run(work, pieces, Workers(engine, jobs), isolated=False)):
        progress.report("forward passes of ranks", done + 1, len(pieces))
        if isinstance(result, Failed):
            remedy = "It may have run out of memory: try fewer --jobs."
            raise NpuscopeError(f"a worker process died: {result.message}", remedy=remedy)
        if isinstance(result, NpuscopeError):
            refused.append(result)
        else:
            ranks += result
    if not ranks and refused:
        raise refused[0]
    why = {str(error.path): str(error) for error in refused}
    return ForwardRanks(tuple(ranks), {**broken, **why}, tuple(name for rank in ranks for name in rank.written))


def _one_or_why(piece: Piece) -> list[RankPasses] | NpuscopeError:
    try:
        return _one(piece)
    except CannotWrite:
        raise
    except NpuscopeError as error:
        path = error.path or piece[0]
        return NpuscopeError(error.what, path=str(path), line=error.line, record=error.record, remedy=error.remedy)


def _one(piece: Piece) -> list[RankPasses]:
    """All of one capture, which may itself hold several ranks or devices."""
    path, rank, options = piece
    parts = split_ranks(read(path))
    options.check_one_file(path, len(parts))
    options = replace(options, only_one=options.only_one and len(parts) == 1)
    return [_of_part(one, path, rank if one.rank is None else one.rank, options) for one in parts]


def _of_part(part: RankTrace, path: str, rank: int | None, options: ForwardOptions) -> RankPasses:
    found, device = passes(part.trace, options.anchor), part.device
    comm = found.order.filter(pl.col("kind") == "comm")
    count = found.table.height
    of = comm["in_pass"].to_numpy()
    parts = np.split(comm["dur"].to_numpy()[np.argsort(of, kind="stable")], np.cumsum(np.bincount(of, minlength=count)))
    words = [f"{word}{number}" for word, number in (("rank", rank), ("device", device)) if number is not None]
    written = tuple(map(str, _written(found, "_".join(words) or "rank", options)))
    shown = list(range(count)) if options.select is None else selected(found, options.select)
    chosen = None if options.select is None else shown
    of_layers = options.statistics and (chosen or found.table["complete"].any())
    return RankPasses(
        rank, device, path, found.about(), found.frame(), tuple(parts[:count]), tuple(shown),
        statistics(found, numbers=chosen) if of_layers else None, written,
    )  # fmt: skip


def _written(found: Passes, folder: str, options: ForwardOptions) -> list[Path]:
    written: list[Path] = []
    if options.out is not None:
        chosen = selected(found, options.select or (CLEAN,))
        if not is_table(options.out):
            place = options.out if options.only_one else options.out / folder
            place.mkdir(exist_ok=True)
            written = fill(found, chosen, options.window, place)
        elif len(chosen) > 1:
            remedy = "Choose one with --select, or name a folder."
            raise CannotWrite(f"holds one pass, and {len(chosen)} are selected", path=options.out, remedy=remedy)
        else:
            written = write_pass(found, chosen[0], options.window, options.out)
    if options.perfetto is not None:
        with_tracks(found).write(options.perfetto)
        written.append(options.perfetto)
    return written
