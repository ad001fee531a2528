"""Bytes of a capture: plain, gzip or zstd, recognised by their first bytes, unpacked as a stream; and small JSON in it.

A few kilobytes can unpack to terabytes, so unpacking stops at a ratio no real trace reaches. An event's `args` stay
JSON text until somebody asks for a field.
"""

from __future__ import annotations

import io
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

import msgspec
import polars as pl

from npuscope.base import progress
from npuscope.base.errors import BadInput
from npuscope.base.toml_file import checked
from npuscope.trace.schema import ns_from_us

GZIP, ZSTD, SQLITE = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"SQLite format 3\x00"  # first bytes
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
    """The first unpacked bytes, by which formats are recognised."""
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


T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
NO_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what decoding damaged text raises
WHOLE = 2**63  # ids and times beyond this fit no column


def read_json(path: Path, type: type[T], what: str) -> T:
    """The file as an instance of `type`; `what` names the file's kind in the error."""
    return checked(lambda: msgspec.json.decode(read_all(path), type=type), what, path)


def decode_object(
    text: bytes | msgspec.Raw, type: type[S], what: str, path: Path, unknown: Counter[str], where: str = "top-level key"
) -> S:
    """A JSON object as a struct. Keys that the struct does not have are counted in `unknown`, by how much they hold."""
    fields = checked(lambda: msgspec.json.decode(text, type=dict[str, msgspec.Raw]), what, path)
    for key in fields.keys() - set(type.__struct_encode_fields__):
        unknown[f"{where} '{key}'"] += _entries(fields[key])
    return checked(lambda: msgspec.json.decode(text, type=type), what, path)


def _entries(text: msgspec.Raw) -> int:
    """Entries of a list; 1 for anything else, so that an empty list counts as well."""
    if not bytes(text).lstrip().startswith(b"["):
        return 1
    try:
        return max(1, len(msgspec.json.decode(text, type=list[msgspec.Raw])))
    except (msgspec.DecodeError, RecursionError):
        return 1


def whole_number(text: str) -> int | None:
    """A non-negative number of plain decimal digits that fits 63 bits; None for anything else."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        return None
    number = int(text)
    return number if number < WHOLE else None


def json_field(args: pl.Series, name: str) -> pl.Series:
    """One field of every row's JSON object, as text (a string without its quotes); null where it is absent."""
    if '"' in name or "\\" in name:  # Polars' JSON paths have no way to write these
        return pl.Series(name, [_field_of(text, name) for text in args], dtype=pl.String)
    return args.str.json_path_match(f'$["{name}"]').alias(name)


def _field_of(text: str | None, name: str) -> str | None:
    fields = None if text is None else msgspec.json.decode(text)
    value = fields.get(name) if isinstance(fields, dict) else None
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def json_whole_number(args: pl.Series, name: str) -> pl.Series:
    """One field as int64; null where it is absent or not a whole number."""
    return json_field(args, name).cast(pl.Int64, strict=False)


def json_microseconds(args: pl.Series, name: str) -> pl.Series:
    """One field that holds microseconds, as nanoseconds."""
    return json_field(args, name).to_frame().select(ns_from_us(pl.col(name)).alias(name))[name]
