"""A small JSON file, decoded and checked in one go, with every way of being broken as one clear error."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TypeVar

import msgspec

from npuscope.base.toml_file import checked
from npuscope.trace import source

T = TypeVar("T")
S = TypeVar("S", bound=msgspec.Struct)
WHOLE = 2**63  # ids and times beyond this fit no column


def read_json(path: Path, type: type[T], what: str) -> T:
    """The file as an instance of `type`; `what` names the file's kind in the error."""
    return checked(lambda: msgspec.json.decode(source.read_all(path), type=type), what, path)


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
