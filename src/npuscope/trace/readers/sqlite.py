"""A profiler's SQLite database: whose it is, told by its tables."""

from __future__ import annotations

from pathlib import Path

from npuscope.base.errors import BadInput
from npuscope.trace.core import Trace
from npuscope.trace.readers import ascend_db, nsys
from npuscope.trace.tables import SqliteFile, read_sqlite


def read(path: Path) -> Trace:
    """The database as a Trace, by the reader that knows its tables."""
    return read_sqlite(path, _trace_of)


def _trace_of(file: SqliteFile) -> Trace:
    if ascend_db.recognises(file.tables):
        return ascend_db.trace_of(file)
    if nsys.recognises(file.tables):
        return nsys.trace_of(file)
    if "StringTable" in file.tables:
        what, remedy = "a database of nvprof, which is not read", "Profile with Nsight Systems instead."
    else:
        what = "this SQLite file has no TASK, CANN_API or PYTORCH_API table of Ascend's, nor one of Nsight Systems'"
        remedy = "`npuscope formats` lists what is read."
    raise BadInput(what, path=file.path, remedy=remedy)
