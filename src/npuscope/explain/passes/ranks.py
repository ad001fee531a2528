"""Forward passes of many ranks: each capture in a process of its own or on Ray."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from npuscope.base import progress
from npuscope.base.engine import run
from npuscope.base.errors import CannotWrite, NpuscopeError
from npuscope.explain.choosing import split_ranks
from npuscope.explain.passes.export import CLEAN, fill, is_export, selected, with_tracks, write_pass
from npuscope.explain.passes.found import WINDOWS, Passes, passes
from npuscope.explain.passes.statistics import RankPasses, Skew, skew, statistics
from npuscope.trace import read
from npuscope.trace.formats import check_target
from npuscope.trace.readers.root import captures_of
from npuscope.trace.writers.atomic import whole_folder

FILES = (".json", ".gz", ".zst", ".CSV", ".npu", ".pftrace", ".html", ".txt", ".parquet")


@dataclass(frozen=True)
class Wanted:
    """What to do with each rank's passes: which kernel stands for a layer; statistics; tables to write."""

    anchor: str | None = None
    statistics: bool = False
    select: tuple[str, ...] | None = None  # passes to show and to write; without, all are shown and clean ones written
    window: str = "full"
    out: Path | None = None  # a .csv for one pass of one rank, else a folder for all
    perfetto: Path | None = None  # a timeline of one rank, with tracks for passes and layers
    alone: bool = False  # the capture is the only one, so that its export needs no folder per rank


@dataclass(frozen=True)
class Ranks:
    """All ranks of a profiler root, in order, and their skew where there are several."""

    ranks: tuple[RankPasses, ...]
    not_read: dict[str, str] = field(default_factory=dict)
    written: tuple[str, ...] = ()

    @cached_property
    def skew(self) -> Skew | None:
        return skew(self.ranks) if len(self.ranks) > 1 else None

    def as_dict(self) -> dict[str, object]:
        """All passes in one list, each with its rank; what concerns a whole rank under `ranks`."""
        skewed = self.skew
        return {
            "passes": [
                {"rank": rank.rank, "device": rank.device, **told} for rank in self.ranks for told in rank.passes.rows()
            ],
            "ranks": [
                {
                    "rank": rank.rank,
                    "device": rank.device,
                    "path": rank.path,
                    **rank.about,
                    **({} if rank.statistics is None else {"statistics": rank.statistics.as_dict()}),
                }
                for rank in self.ranks
            ],
            "skew": None if skewed is None else skewed.as_dict(),
            "not_read": self.not_read,
            "written": list(self.written),
        }


def forward(path: str | Path, wanted: Wanted, engine: str = "processes", jobs: int | None = None) -> Ranks:
    """The forward passes of a capture, or of every capture of a profiler root, in processes or on Ray."""
    found = captures_of(Path(path))
    numbered = _numbered([capture.rank for capture in found.captures])
    captures = [(str(capture.path), rank) for capture, rank in zip(found.captures, numbered, strict=True)]
    one_file = wanted.perfetto or (wanted.out if is_table(wanted.out) else None)
    if one_file is not None and len(captures) > 1:
        raise _one_rank(one_file, f"{path} has {len(captures)}")
    if wanted.out is not None and not is_table(wanted.out) and wanted.out.suffix in FILES:
        raise CannotWrite("passes are exported as a .csv, or as many of them in a folder", path=wanted.out)
    if wanted.perfetto is not None:
        check_target(wanted.perfetto)
    if wanted.window not in WINDOWS:
        raise NpuscopeError(f"no window '{wanted.window}'", remedy=f"Windows: {', '.join(WINDOWS)}.")
    wanted = replace(wanted, alone=len(captures) == 1)
    if wanted.out is None or is_table(wanted.out):
        return _all(captures, wanted, engine, jobs, found.broken)
    with whole_folder(wanted.out, is_ours=is_export) as place:
        result = _all(captures, replace(wanted, out=place), engine, jobs, found.broken)
    written = (Path(name) for name in result.written)
    moved = (wanted.out / name.relative_to(place) if name.is_relative_to(place) else name for name in written)
    return replace(result, written=tuple(map(str, moved)))


def is_table(path: Path | None) -> bool:
    """True for an export of one pass."""
    return path is not None and re.search(r"\.csv(\.gz|\.zst)?$", path.name) is not None


def _one_rank(path: Path, more: str) -> CannotWrite:
    return CannotWrite(f"one file holds one rank, and {more}", path=path, remedy="Name one capture, or a folder.")


def _all(
    captures: list[tuple[str, int | None]], wanted: Wanted, engine: str, jobs: int | None, broken: dict[str, str]
) -> Ranks:
    """Every capture; of several, those that cannot be cut are told and left out."""
    ranks: list[RankPasses] = []
    refused: list[NpuscopeError] = []
    pieces = [(*capture, wanted) for capture in captures]
    for done, result in enumerate(run(_one if wanted.alone else _one_or_why, pieces, engine, jobs)):
        progress.report("forward passes of ranks", done + 1, len(pieces))
        if isinstance(result, _Refused):
            refused.append(NpuscopeError(**result._asdict()))
        else:
            ranks += result
    if not ranks and refused:
        raise refused[0]
    told = {str(error.path): str(error) for error in refused}
    return Ranks(tuple(ranks), {**broken, **told}, tuple(name for rank in ranks for name in rank.written))


class _Refused(NamedTuple):
    """Why a capture could not be cut, as data that travels between processes."""

    what: str
    line: int | None
    record: int | None
    remedy: str
    path: str


def _one_or_why(piece: tuple[str, int | None, Wanted]) -> list[RankPasses] | _Refused:
    try:
        return _one(piece)
    except CannotWrite:
        raise
    except NpuscopeError as error:
        return _Refused(error.what, error.line, error.record, error.remedy, str(error.path or piece[0]))


def _numbered(told: list[int | None]) -> list[int | None]:
    """The rank of each capture; one that has none or that is taken gets the next free number."""
    if len(told) == 1:
        return told
    taken: set[int] = set()
    for place, rank in enumerate(told):
        if rank is None or rank in taken:
            told[place] = rank = min(set(range(len(taken) + 1)) - taken)
        taken.add(rank)
    return told


def _one(piece: tuple[str, int | None, Wanted]) -> list[RankPasses]:
    """All of one capture, which may itself hold several ranks or devices."""
    path, rank, wanted = piece
    parts = split_ranks(read(path))
    one_file = wanted.perfetto or (wanted.out if is_table(wanted.out) else None)
    if one_file is not None and len(parts) > 1:
        raise _one_rank(one_file, f"{path} has {len(parts)}")
    wanted = replace(wanted, alone=wanted.alone and len(parts) == 1)
    results = []
    for part in parts:
        own = part.rank if part.rank is not None else rank
        results.append(_told(passes(part.trace, wanted.anchor), path, own, part.device, wanted))
    return results


def _told(found: Passes, path: str, rank: int | None, device: int | None, wanted: Wanted) -> RankPasses:
    comm = found.order.filter(pl.col("kind") == "comm")
    count = found.table.height
    of = comm["in_pass"].to_numpy()
    parts = np.split(comm["dur"].to_numpy()[np.argsort(of, kind="stable")], np.cumsum(np.bincount(of, minlength=count)))
    words = [f"{word}{number}" for word, number in (("rank", rank), ("device", device)) if number is not None]
    written = _written(found, "_".join(words) or "rank", wanted)
    shown = range(count) if wanted.select is None else selected(found, wanted.select)
    counted = None if wanted.select is None else list(shown)
    told = None
    if wanted.statistics and (counted or found.table["complete"].any()):
        told = statistics(found, numbers=counted)
    return RankPasses(
        rank, device, path, found.about(), found.frame(), tuple(parts[:count]), tuple(shown), told,
        tuple(map(str, written)),
    )  # fmt: skip


def _written(found: Passes, folder: str, wanted: Wanted) -> list[Path]:
    written: list[Path] = []
    if wanted.out is not None:
        chosen = selected(found, wanted.select or (CLEAN,))
        if is_table(wanted.out):
            if len(chosen) > 1:
                remedy = "Choose one with --select, or name a folder."
                raise CannotWrite(f"holds one pass, and {len(chosen)} are selected", path=wanted.out, remedy=remedy)
            written = write_pass(found, chosen[0], wanted.window, wanted.out)
        else:
            place = wanted.out if wanted.alone else wanted.out / folder
            place.mkdir(exist_ok=True)
            written = fill(found, chosen, wanted.window, place)
    if wanted.perfetto is not None:
        with_tracks(found).write(wanted.perfetto)
        written.append(wanted.perfetto)
    return written
