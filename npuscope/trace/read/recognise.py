"""Which reader understands a capture, told by content, never by file name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from npuscope.errors import BadInput, UnknownFormat
from npuscope.trace import source
from npuscope.trace.core import Trace

Reader = Callable[[Path], Trace]


def reader_of(path: Path) -> Reader:
    """The reader for a path; raises UnknownFormat with what was found there."""
    if not path.exists():
        raise BadInput("no such file or folder", path=path)
    head = source.head(path)
    from npuscope.trace.read import kernel_details

    if kernel_details.recognises(head):
        return kernel_details.read
    from npuscope.trace.read import chrome
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return chrome.read
    raise UnknownFormat("nothing I know", path=path)
