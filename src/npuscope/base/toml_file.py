"""A small TOML file of settings, decoded and checked in one go, with every way of being broken as one clear error."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import msgspec

from npuscope.base.errors import BadInput

T = TypeVar("T")
_WHERE = re.compile(r" - at `\$([^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_IN_SYNTAX = re.compile(r"\(at line (\d+), ")


def checked(decode: Callable[[], T], what: str, path: Path) -> T:
    """What a decoder makes of a file, with every way of failing as one clear error."""
    try:
        return decode()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadInput(f"not {what} ({error})", path=path) from error


def read_toml(path: Path, type: type[T], what: str) -> T:
    """The file as an instance of `type`; `what` names the file's kind in the error."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{what} cannot be read: {error.strerror or error}", path=path) from error
    return decode_toml(data, type, what, path)


def decode_toml(data: bytes, type: type[T], what: str, path: Path) -> T:
    """As `read_toml`, from bytes already read."""
    try:
        return msgspec.toml.decode(data, type=type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadInput(f"not {what} ({error})", path=path, line=_line(data, str(error))) from error


def line_of(data: bytes, array: str, entry: int, key: str = "") -> int | None:
    """The line of an entry of an array of tables, counted from 0, or of one of its keys; None where it is not found."""
    lines = data.decode(errors="replace").splitlines()
    headers = [n for n, line in enumerate(lines) if re.match(rf"\s*\[\[\s*{re.escape(array)}\s*\]\]", line)]
    if entry >= len(headers):
        return None
    begin = headers[entry]
    end = next((n for n in range(begin + 1, len(lines)) if re.match(r"\s*\[", lines[n])), len(lines))
    return 1 + next((n for n in range(begin + 1, end) if key and _sets(lines[n], key)), begin)


def _line(data: bytes, message: str) -> int | None:
    """The line that a decoder's message is about, where the message has a place."""
    if found := _IN_SYNTAX.search(message):
        return int(found[1])
    where, unknown = _WHERE.search(message), _UNKNOWN.search(message)
    place = where[1] if where else ""
    key = unknown[1] if unknown else ""
    if entry := re.match(r"\.(\w+)\[(\d+)\](?:\.(\w+))?", place):
        return line_of(data, entry[1], int(entry[2]), entry[3] or key)
    key = key or place.lstrip(".").partition(".")[0].partition("[")[0]
    lines = data.decode(errors="replace").splitlines()
    return next((n for n, line in enumerate(lines, 1) if key and _sets(line, key)), None)


def _sets(line: str, key: str) -> bool:
    """True for a line that begins a key's value or its table."""
    return re.match(rf"\s*(\[\[?\s*)?[\"']?{re.escape(key)}[\"']?\s*[=.\]]", line) is not None
