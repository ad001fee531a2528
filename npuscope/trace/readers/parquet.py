"""npuscope's own folder: slices.parquet, lanes.parquet, edges.parquet and meta.json."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
from polars.exceptions import PolarsError

from npuscope.errors import BadInput
from npuscope.trace.core import OUTSIDE, Trace, overlaps
from npuscope.trace.json_file import read_json
from npuscope.trace.meta import Meta, add_counts

MARK = "npuscope_trace"  # the key of meta.json that holds the folder's version
VERSION = 1
TABLES = ("slices", "lanes", "edges")


class Version(msgspec.Struct):
    npuscope_trace: int


def is_folder(path: Path) -> bool:
    """True for a folder that holds a meta.json and slices."""
    return (path / "meta.json").is_file() and (path / "slices.parquet").is_file()


def is_ours(path: Path) -> bool:
    """True for a folder that holds the four files, written by npuscope, and nothing else."""
    names = {"meta.json", *(f"{name}.parquet" for name in TABLES)}
    if {child.name for child in path.iterdir()} != names or not all((path / name).is_file() for name in names):
        return False
    return f'"{MARK}"'.encode() in (path / "meta.json").read_bytes()[:200]


def read(path: Path, window: tuple[int, int] | None = None) -> Trace:
    """The folder's Trace. With `window`, only the slices that overlap it leave the disk."""
    version = read_json(path / "meta.json", Version, "the meta.json of an npuscope folder").npuscope_trace
    if version != VERSION:
        raise BadInput(f"folder version {version}, this npuscope reads {VERSION}", path=path / "meta.json")
    meta = read_json(path / "meta.json", Meta, "the meta.json of an npuscope folder")  # newer keys are passed over
    try:
        slices = pl.scan_parquet(path / "slices.parquet")
        if window is not None:
            inside = slices.select(overlaps(*window).sum()).collect().item()
            outside = int(slices.select(pl.len()).collect().item()) - int(inside)
            meta = replace(meta, dropped=add_counts(meta.dropped, {OUTSIDE: outside} if outside else {}))
            slices = slices.filter(overlaps(*window))
        lanes, edges = (pl.read_parquet(path / f"{name}.parquet") for name in TABLES[1:])
        trace = Trace.of(slices.collect(), lanes, meta, edges)
    except (PolarsError, OSError) as error:
        raise BadInput(f"not a whole npuscope folder ({str(error).splitlines()[0]})", path=path) from error
    _check(trace, path)
    return trace if window is None else trace.window(*window)


def _check(trace: Trace, path: Path) -> None:
    """A folder that was changed by hand may break what every analysis relies on."""
    slices, lanes = trace.slices, trace.lanes
    for table, columns in ((slices, ("lane", "start", "dur", "kernel")), (lanes, ("lane", "name"))):
        for column in columns:
            if missing := table[column].null_count():
                raise BadInput(f"not a whole npuscope folder: {column} is missing in {missing} rows", path=path)
    if lanes["lane"].n_unique() < lanes.height or not slices["lane"].unique().is_in(lanes["lane"].implode()).all():
        raise BadInput("not a whole npuscope folder: slices and lanes do not belong together", path=path)
    if (slices["dur"] < 0).any():
        raise BadInput("not a whole npuscope folder: a negative duration", path=path)
