"""npuscope's own folder: slices.parquet, lanes.parquet, edges.parquet, counters.parquet and meta.json.

meta.json holds the size and the hash of each table: Polars ends the whole process on some damaged Parquet, so it is
given none. Folders of earlier versions have no hashes, no counters.parquet and no counts of rows; they still open.
"""

from __future__ import annotations

import hashlib
from dataclasses import fields
from pathlib import Path
from typing import Annotated

import msgspec
import polars as pl
from polars.exceptions import PanicException, PolarsError

from npuscope.base.errors import BadInput
from npuscope.base.files import quiet_failure
from npuscope.trace.core import LARGEST, OUTSIDE, Meta, Trace, account_of, overlaps, within
from npuscope.trace.formats import Reader
from npuscope.trace.schema import SIGNAL, SIGNALS
from npuscope.trace.source import read_json

MARK = "npuscope_trace"  # the key of meta.json that holds the folder's version
VERSION = 1
TABLES = ("slices", "lanes", "edges", "counters")


class Content(msgspec.Struct, frozen=True):
    """What a file holds, in short."""

    bytes: int
    sha256: str


class Head(msgspec.Struct):
    """What meta.json says of the folder itself."""

    npuscope_trace: int
    rows: dict[str, int] | None = None  # of each table; not in older folders
    content: dict[str, Content] | None = None  # of each file beside this; not in older folders


Moment = Annotated[int, msgspec.Meta(gt=-LARGEST, lt=LARGEST)]


class Simulation(msgspec.Struct):
    """What a simulation says of its run."""

    wall: dict[str, object]
    diagnosis: dict[str, object]
    rank: int | None = None


class KnownNotes(msgspec.Struct):
    """What analyses rely on of the notes in meta.json."""

    window_ns: tuple[Moment, Moment] | msgspec.UnsetType = msgspec.UNSET
    rank_windows_ns: dict[str, tuple[Moment, Moment]] = {}
    simulated: Simulation | msgspec.UnsetType = msgspec.UNSET


WHOLE = ("run", "since", "late_ns")  # columns of whole numbers that may be there


def is_folder(path: Path) -> bool:
    """True for a folder that holds a meta.json and slices."""
    return (path / "meta.json").is_file() and (path / "slices.parquet").is_file()


def is_ours(path: Path) -> bool:
    """True for a folder that holds the files written by npuscope, and nothing else."""
    found = {child.name for child in path.iterdir()}
    needed = {"meta.json", *(f"{name}.parquet" for name in TABLES)}
    if found | {"counters.parquet"} != needed or not all((path / name).is_file() for name in found):
        return False
    return f'"{MARK}"'.encode() in (path / "meta.json").read_bytes()[:200]


def content_of(path: Path) -> Content:
    """A file's size and hash."""
    with path.open("rb") as file:
        return Content(path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest())


def read(path: Path, window: tuple[int, int] | None = None) -> Trace:
    """The folder's Trace. With `window`, only what overlaps it is unpacked."""
    head = read_json(path / "meta.json", Head, "the meta.json of an npuscope folder")
    if head.npuscope_trace != VERSION:
        raise BadInput(f"folder version {head.npuscope_trace}, this npuscope reads {VERSION}", path=path / "meta.json")
    meta = _with_unknown(read_json(path / "meta.json", Meta, "the meta.json of an npuscope folder"), path)
    try:
        _check_files(head, path)
        return _read(path, head, meta, window)
    except (PolarsError, PanicException, OSError) as error:  # damaged metadata makes Polars panic
        raise BadInput(f"not a whole npuscope folder ({str(error).splitlines()[0]})", path=path) from error


def _read(path: Path, head: Head, meta: Meta, window: tuple[int, int] | None) -> Trace:
    with quiet_failure():
        tables = {name: _scan(path / f"{name}.parquet") for name in TABLES if _is_there(path, name)}
        rows = {name: int(table.select(pl.len()).collect().item()) for name, table in tables.items()}
        _check_rows(rows, head, meta, path)
        if window is not None:
            tables["slices"] = tables["slices"].filter(overlaps(*window))
            if "counters" in tables:
                tables["counters"] = within(tables["counters"], *window)
        kept = {name: table.collect() for name, table in tables.items()}
        outside = sum(rows[name] - kept[name].height for name in ("slices", "counters") if name in kept)
        meta = meta.plus(dropped={OUTSIDE: outside})
        trace = Trace.of(kept["slices"], kept["lanes"], meta, kept["edges"], kept.get("counters"))
    _check(trace, path)
    return trace if window is None else trace.window(*window)


def _with_unknown(meta: Meta, path: Path) -> Meta:
    """The meta, with what a newer npuscope, or somebody else, put into the folder counted as unknown."""
    keys = read_json(path / "meta.json", dict[str, msgspec.Raw], "the meta.json of an npuscope folder").keys()
    known = {MARK, "rows", "content", *(field.name for field in fields(Meta))}
    files = {child.name for child in path.iterdir()} - {"meta.json", *(f"{name}.parquet" for name in TABLES)}
    strange = {
        **{f"key of meta.json '{key}'": 1 for key in sorted(keys - known)},
        **{f"file '{name}'": 1 for name in sorted(files)},
    }
    return meta.plus(unknown=strange)


def _scan(path: Path) -> pl.LazyFrame:
    return pl.scan_parquet(path, glob=False)  # a name with a bracket or a star is a name


def _is_there(path: Path, table: str) -> bool:
    return table != "counters" or (path / "counters.parquet").is_file()


def _check_files(head: Head, path: Path) -> None:
    """Tables that are not as they were written."""
    for name, written in (head.content or {}).items():
        found = content_of(path / name)
        if found != written:
            cut = f" ({found.bytes:,} bytes for {written.bytes:,})" if found.bytes != written.bytes else ""
            what = f"not a whole npuscope folder: {name} is not as it was written{cut}"
            raise BadInput(what, path=path, remedy="Copy or write the folder again.")


def _check_rows(rows: dict[str, int], head: Head, meta: Meta, path: Path) -> None:
    """Tables that were exchanged or cut do not fit what meta.json says of them."""
    if head.rows is not None:
        found = {**rows, **account_of(meta)}
        for name, counted in head.rows.items():
            if found.get(name, 0) != counted:
                what = "entries in meta.json" if name in account_of(meta) else "rows"
                raise _mixed_up(f"{name} has {found.get(name, 0):,} {what} where meta.json counts {counted:,}", path)
        return
    accounted = rows["slices"] + sum(meta.merged.values()) + sum(meta.dropped.values())
    if meta.records and accounted != meta.records:
        raise _mixed_up(f"slices and account add up to {accounted:,} where {meta.records:,} records were read", path)


def _mixed_up(what: str, path: Path) -> BadInput:
    return BadInput(f"the files of this folder do not belong together: {what}", path=path, remedy="Write it again.")


def _check(trace: Trace, path: Path) -> None:
    """A folder that was changed by hand may break what every analysis relies on."""
    slices, lanes, samples = trace.slices, trace.lanes, trace.counters
    needed = (
        (slices, ("lane", "start", "dur", "kernel")),
        (lanes, ("lane", "name")),
        (samples, ("name", "time", "value")),
    )
    for table, columns in needed:
        for column in columns:
            if missing := table[column].null_count():
                raise BadInput(f"not a whole npuscope folder: {column} is missing in {missing} rows", path=path)
    known = lanes["lane"].implode()
    if lanes["lane"].n_unique() < lanes.height or not slices["lane"].unique().is_in(known).all():
        raise BadInput("not a whole npuscope folder: slices and lanes do not belong together", path=path)
    if not samples["lane"].drop_nulls().unique().is_in(known).all():
        raise BadInput("not a whole npuscope folder: counters and lanes do not belong together", path=path)
    if (slices["dur"] < 0).any():
        raise BadInput("not a whole npuscope folder: a negative duration", path=path)
    for table in (slices, trace.edges):
        for column in set(WHOLE) & set(table.columns):
            if not table[column].dtype.is_integer() and table[column].dtype != pl.Null:
                raise BadInput(f"not a whole npuscope folder: {column} holds no whole numbers", path=path)
    signals = trace.edges.filter(pl.col("source") == SIGNAL)
    if signals.height and not all(name in signals.columns and signals[name].null_count() == 0 for name in SIGNALS):
        raise BadInput("not a whole npuscope folder: a signal without its times", path=path)
    try:
        notes = msgspec.convert(trace.meta.notes, KnownNotes)
    except msgspec.ValidationError as error:
        raise BadInput(f"not a whole npuscope folder: the notes of meta.json ({error})", path=path) from error
    if any(begin > end for begin, end in notes.rank_windows_ns.values()):
        raise BadInput("not a whole npuscope folder: a rank ends before it begins", path=path)


READER = Reader(
    "parquet",
    "a folder npuscope wrote",
    lambda sample: is_folder(sample.path),
    read,
    read_window=read,
    files=("*.npu",),
)
