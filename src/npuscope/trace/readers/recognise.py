"""Which reader understands a capture, told by content, never by file name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

from npuscope.base.errors import BadInput, NpuscopeError, UnknownFormat
from npuscope.base.plugins import READERS, brought
from npuscope.trace import source
from npuscope.trace.core import Trace

if TYPE_CHECKING:
    from npuscope.trace.readers.root import Found

Reader = Callable[[Path], Trace]


def reader_of(path: Path) -> Reader:
    """The reader for a path; raises UnknownFormat with what was found there instead."""
    if not path.exists():
        raise BadInput("no such file or folder", path=path)
    reader = _folder_reader(path) if path.is_dir() else _file_reader(path)
    if reader is None or reader is _any_chrome:  # what others bring goes before the reader of any Chrome JSON
        reader = _brought_reader(path) or reader
    if reader is not None:
        return reader
    if path.is_dir():
        return _root_reader
    raise _unknown(path)


def is_capture(path: Path) -> bool:
    """True when the path, by itself, is something to read; raises BadInput when it cannot be opened."""
    if path.is_dir():
        return (_folder_reader(path) or _brought_reader(path)) is not None
    return path.is_file() and (_file_reader(path) or _brought_reader(path)) is not None


def captures_of(path: Path) -> Found:
    """The captures a path stands for: itself, or those of a profiler root, with the rank each one's place tells."""
    from npuscope.trace.readers import root

    if reader_of(path) is not _root_reader:
        return root.Found([root.Capture(path, None)], {}, {})
    found = root.captures_in(path, is_capture)
    if not found.captures:
        raise root.nothing_in(path, found)
    return found


def _file_reader(path: Path) -> Reader | None:
    from npuscope.trace.readers import kernel_details, rocprof, sqlite, swimlane
    from npuscope.trace.tables import MAGIC

    head = source.head(path)
    if head.startswith(MAGIC):
        return sqlite.read
    if kernel_details.recognises(head):
        return kernel_details.read
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    if text.startswith(b"{"):
        if rocprof.recognises(text):
            return rocprof.read
        return swimlane.read if swimlane.recognises(text) else _any_chrome
    return _any_chrome if text.startswith(b"[") else None


def _any_chrome(path: Path) -> Trace:
    from npuscope.trace.readers import chrome

    return chrome.read(path)


def _brought_reader(path: Path) -> Reader | None:
    """The reader of another package that says it understands the path (docs/howto/extend.md)."""
    for found in brought(READERS):
        try:
            if found.thing.recognises(path):
                return cast(Reader, found.thing.read)
        except NpuscopeError:
            raise
        except Exception as error:
            what = f"the reader '{found.name}' of {found.package} failed ({type(error).__name__}: {error})"
            raise NpuscopeError(what, path=path, remedy="Report it there, or uninstall that package.") from error
    return None


def _folder_reader(path: Path) -> Reader | None:
    from npuscope.trace.readers import parquet

    if parquet.is_folder(path):
        return parquet.read
    from npuscope.trace.readers import swimlane, tracr
    from npuscope.trace.readers.tracr import join

    bundle, records = tracr.bundle_root(path), swimlane.records_in(path)
    if bundle and records:
        return lambda _: join(tracr.read(bundle), swimlane.read(records))
    if bundle:
        return tracr.read
    return None if records is None else lambda _: swimlane.read(records)


def _root_reader(path: Path) -> Trace:
    from npuscope.trace.readers import root

    return root.read(path, root.captures_in(path, is_capture), lambda capture: reader_of(capture)(capture))


def _unknown(path: Path) -> UnknownFormat:
    from npuscope.trace.readers.root import foreign_file

    head = source.head(path, 4096)
    if not head:
        return UnknownFormat("the file is empty", path=path)
    if foreign := foreign_file(path, head):
        return UnknownFormat(f"{foreign.what}, which is not read", path=path, remedy=foreign.remedy)
    head = head[:64]
    if head.isascii() and b"\x00" not in head:
        first = head.splitlines()[0].decode(errors="replace")
        what = f"text that is no capture npuscope knows; it begins with '{first[:60]}'"
    else:
        what = "binary data that is no capture npuscope knows"
    return UnknownFormat(what, path=path, remedy="`npuscope formats` lists what is read.")
