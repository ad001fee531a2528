"""npuscope's own folder: slices.parquet, lanes.parquet, edges.parquet and meta.json."""

from __future__ import annotations

from pathlib import Path

import msgspec
import polars as pl
from polars.exceptions import PolarsError

from npuscope.errors import BadInput
from npuscope.trace import source
from npuscope.trace.core import Trace
from npuscope.trace.meta import Meta

MARK = "npuscope_trace"  # the key of meta.json that holds the folder's version
VERSION = 1
TABLES = ("slices", "lanes", "edges")


def is_folder(path: Path) -> bool:
    """True for a folder that holds the four files."""
    return (path / "meta.json").is_file() and (path / "slices.parquet").is_file()


def read(path: Path, window: tuple[int, int] | None = None) -> Trace:
    """The folder's Trace. With `window`, only the slices that overlap it leave the disk."""
    try:
        data = msgspec.json.decode(source.read_all(path / "meta.json"), type=dict)
        if data.get(MARK) != VERSION:
            raise BadInput(f"folder version {data.get(MARK)!r}, this npuscope reads {VERSION}", path=path / "meta.json")
        slices = pl.scan_parquet(path / "slices.parquet")
        if window is not None:
            start, end = window
            slices = slices.filter((pl.col("start") < end) & (pl.col("start") + pl.col("dur") >= start))
        lanes, edges = (pl.read_parquet(path / f"{name}.parquet") for name in TABLES[1:])
        trace = Trace.of(slices.collect(), lanes, Meta.from_dict(data), edges)
    except (PolarsError, msgspec.DecodeError, TypeError, OSError) as error:
        raise BadInput(f"not a whole npuscope folder ({str(error).splitlines()[0]})", path=path) from error
    return trace if window is None else trace.window(*window)
