"""`read`: any capture, recognised by its content, as a Trace."""

from __future__ import annotations

from pathlib import Path

from npuscope.trace.core import Trace
from npuscope.trace.read.recognise import reader_of


def read(path: str | Path) -> Trace:
    """The capture at `path` (a file, or a folder where the format is one) as a Trace.

    gzip and zstd files are unpacked on the way. Raises `NpuscopeError` with file, line and remedy for
    anything that cannot be understood.
    """
    path = Path(path)
    return reader_of(path)(path)
