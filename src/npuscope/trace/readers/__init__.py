"""`read`: any capture, recognised by its content, as a Trace. One module per format."""

from __future__ import annotations

from pathlib import Path

from npuscope.base.errors import BadInput
from npuscope.trace.core import Trace
from npuscope.trace.readers import parquet
from npuscope.trace.readers.recognise import reader_of


def read(path: str | Path, *, window: tuple[int, int] | None = None) -> Trace:
    """The capture at `path` (a file, or a folder where the format is one) as a Trace.

    gzip and zstd files are unpacked on the way. With `window`, two absolute times in nanoseconds, only
    the slices that overlap it are kept; from npuscope's own folders only those leave the disk, so that
    a folder larger than memory can be looked into. Raises `NpuscopeError` with file, line and remedy
    for anything that cannot be understood.
    """
    if not str(path):
        raise BadInput("no path given")
    path = Path(path)
    try:
        if window is not None and parquet.is_folder(path):
            return parquet.read(path, window)
        trace = reader_of(path)(path)
    except OSError as error:
        raise BadInput(error.strerror or str(error), path=error.filename or path) from error
    return trace if window is None else trace.window(*window)
