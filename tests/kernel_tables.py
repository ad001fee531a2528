"""The table of kernels, held against the rules that its entries keep: a mistake has its line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from npuscope.base.errors import BadInput
from npuscope.base.toml_file import decode_toml, line_of
from npuscope.chip.kernels import KernelEntry, KernelTable

ANSWERS = ("work", "area", "kind", "collective", "landmark", "phase", "law")  # what an entry may say of its names


def parse_table(data: bytes, path: Path) -> KernelTable:
    """A table from its text; what is wrong with it is an error with the line."""
    table = decode_toml(data, KernelTable, "a table of kernels", path)
    earlier: set[tuple[str, str]] = set()
    for number, entry in enumerate(table.kernel):
        for key, mistake in _mistakes(entry, earlier):
            raise BadInput(mistake, path=path, line=line_of(data, "kernel", number, key))
    return table


def _mistakes(entry: KernelEntry, earlier: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Keys of an entry that cannot stand as they are, with the reason; `earlier`: patterns of the entries before."""
    if not (entry.whole_names or entry.found or entry.spelt):
        yield "", "an entry that knows no name: it has neither names nor whole, found or spelt"
    if (entry.family is None) != (entry.work is None):
        yield ("work" if entry.family is None else "family"), "family and work go together"
    if not any(getattr(entry, key) for key in ANSWERS) and not entry.names and entry.align is None:
        yield "", "an entry that says nothing of the names that it knows"
    if entry.align is not None and not (entry.found or entry.spelt):
        yield "align", "align names what is found, and there is no `found`"
    if entry.work is not None and (entry.work.by == "unpriced") != bool(entry.work.why):
        yield "work", "an unpriced kernel says why, and no other does"
    for key, patterns in (("whole", entry.whole_names), ("found", entry.found), ("spelt", entry.spelt)):
        for pattern in patterns:
            where = "names" if any(pattern in some for some in entry.names.values()) else key
            if (mistake := _broken(pattern, key)) is not None:
                yield where, f"pattern '{pattern}' {mistake}"
            if (key, pattern) in earlier and entry.rule is not None:
                yield where, f"pattern '{pattern}' stands in an entry before"
            if entry.rule is not None:
                earlier.add((key, pattern))


def _broken(pattern: str, key: str) -> str | None:
    if key == "whole" and re.search(r"[A-Z_ ]", pattern):
        return "can fit no plain name, which is small letters and digits"
    if key == "found" and re.search(r"(?<!\\)[A-Z]", pattern):
        return "can be found in no name in small letters: `spelt` finds others"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression ({error})"
    return None
