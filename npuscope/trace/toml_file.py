"""A small TOML file of settings, decoded and checked in one go, with every way of being broken as one clear error."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from npuscope.trace import source
from npuscope.trace.json_file import checked

T = TypeVar("T")


def read_toml(path: Path, type: type[T], what: str) -> T:
    """The file as an instance of `type`; `what` names the file's kind in the error."""
    return decode_toml(source.read_all(path), type, what, path)


def decode_toml(data: bytes, type: type[T], what: str, path: Path) -> T:
    """As `read_toml`, from bytes already read."""
    return checked(lambda: msgspec.toml.decode(data, type=type), what, path)
