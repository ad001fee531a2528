"""Bytes of a capture: plain, gzip or zstd, told by their first bytes, unpacked as a stream.

A few kilobytes can unpack to terabytes, so unpacking stops at a ratio no real trace reaches.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from npuscope.base import progress
from npuscope.base.errors import BadInput

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
CHUNK = 1 << 20
BOMB_RATIO = 64  # the real GPU traces at hand pack 13 to 21 times
BOMB_FLOOR = 128 << 20  # below this size a high ratio harms nobody: what is read takes some five times as much memory


def open_capture(path: Path) -> BinaryIO:
    """The capture's unpacked bytes as a stream, positioned at the start."""
    raw = _open(path)
    magic = raw.read(4)
    raw.seek(0)
    if magic.startswith(GZIP):
        from isal import igzip, igzip_lib

        unpacking = igzip.IGzipFile(fileobj=raw)  # type: ignore[no-untyped-call]
        return cast(
            BinaryIO, _Unpacked(path, raw, cast(BinaryIO, unpacking), cast(type[Exception], igzip_lib.IsalError))
        )
    if magic.startswith(ZSTD):
        import zstandard

        return cast(BinaryIO, _Unpacked(path, raw, cast(BinaryIO, _ZstdFrames(raw)), zstandard.ZstdError))
    return raw


def is_packed(path: Path) -> bool:
    """True for gzip and zstd files."""
    with _open(path) as raw:
        magic = raw.read(4)
    return magic.startswith((GZIP, ZSTD))


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The first unpacked bytes, to tell formats apart."""
    with open_capture(path) as stream:
        return stream.read(size)


def read_all(path: Path) -> bytes:
    """Every unpacked byte."""
    if not is_packed(path):
        return path.read_bytes()
    with open_capture(path) as stream:
        return b"".join(iter(lambda: stream.read(CHUNK), b""))


def chunks(path: Path, size: int = CHUNK) -> Iterator[bytes]:
    """The unpacked bytes piece by piece, reporting progress by the bytes taken from disk."""
    total = path.stat().st_size
    with open_capture(path) as stream:
        while piece := stream.read(size):
            position = stream.packed_position() if isinstance(stream, _Unpacked) else stream.tell()
            progress.report(f"reading {path.name}", min(position, total), total)
            yield piece


def _open(path: Path) -> BinaryIO:
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for somebody to write
            raise BadInput("not a regular file", path=path, remedy="Save it to a file first.")
        return path.open("rb")
    except OSError as error:
        raise BadInput(error.strerror or "cannot be opened", path=path) from error


class _ZstdFrames:
    """Frames one after another. zstandard's own reader takes a file cut inside a frame for a whole one."""

    STEP = 4 << 10  # small, because one step of a bomb unpacks to 32,768 times its size

    def __init__(self, raw: BinaryIO) -> None:
        import zstandard

        self._raw, self._new_frame = raw, zstandard.ZstdDecompressor().decompressobj
        self._frame = self._new_frame()
        self._ready, self._inside = bytearray(), False

    def read(self, size: int) -> bytes:
        while len(self._ready) < size:
            piece = self._frame.unused_data or self._raw.read(self.STEP)
            if not piece:
                if self._inside:
                    raise EOFError
                break
            if self._frame.eof:
                self._frame = self._new_frame()
            self._ready += self._frame.decompress(piece)
            self._inside = not self._frame.eof
        taken = bytes(self._ready[:size])
        del self._ready[:size]
        return taken

    def close(self) -> None:
        self._ready.clear()


class _Unpacked(io.RawIOBase):
    """A decompressor that turns every way of being broken, its own kind of error too, into one clear error."""

    def __init__(self, path: Path, raw: BinaryIO, stream: BinaryIO, damaged: type[Exception]) -> None:
        self._path, self._raw, self._stream, self._damaged = path, raw, stream, damaged
        self._packed_size, self._unpacked = path.stat().st_size, 0

    def packed_position(self) -> int:
        return self._raw.tell()

    def read(self, size: int = -1) -> bytes:
        try:
            piece = self._stream.read(size)
        except EOFError as error:
            raise BadInput("the compressed file ends too early", path=self._path, remedy="Copy it again.") from error
        except (OSError, zlib.error, self._damaged) as error:
            raise BadInput(f"the compressed data is damaged ({error})", path=self._path) from error
        self._unpacked += len(piece)
        if self._unpacked > max(BOMB_FLOOR, BOMB_RATIO * self._packed_size):
            raise BadInput(
                f"unpacks to more than {BOMB_RATIO} times its size, as no trace does",
                path=self._path,
                remedy="If you trust it, unpack it first and read the result.",
            )
        return piece

    def close(self) -> None:
        self._stream.close()
        self._raw.close()
        super().close()
