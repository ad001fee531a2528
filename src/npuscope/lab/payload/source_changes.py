"""Which lines of a program's files differ between two versions."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher
from os.path import basename, commonpath, dirname, relpath

AROUND = 2  # equal lines shown before and after
MOST = 400  # lines of a file


def source_changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[dict[str, object]]:
    """Per changed file its lines, each with its number before and after (0: not there) and " ", "-" or "+"."""
    names = [*old, *new]
    top = commonpath([dirname(name) for name in names]) if names else ""
    found = []
    for file in dict.fromkeys(names):
        if old.get(file) != new.get(file) and old and new:
            lines = _lines(old.get(file, ""), new.get(file, ""))
            shown = relpath(file, top) if top else basename(file)
            found.append({"file": file, "name": shown, "lines": lines[:MOST], "left_out": max(len(lines) - MOST, 0)})
    return found


def _lines(old: str, new: str) -> list[tuple[int, int, str, str]]:
    before, after = old.splitlines(), new.splitlines()
    found: list[tuple[int, int, str, str]] = []
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(AROUND):
        for kind, a, to_a, b, to_b in group:
            if kind == "equal":
                found += [(a + n + 1, b + n + 1, " ", before[a + n]) for n in range(to_a - a)]
            else:
                found += [(a + n + 1, 0, "-", before[a + n]) for n in range(to_a - a)]
                found += [(0, b + n + 1, "+", after[b + n]) for n in range(to_b - b)]
    return found
