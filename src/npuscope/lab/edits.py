"""Edits of a program's text: what changed from one save to the next, in few words."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Mapping
from os.path import basename

from npuscope.lab.payload.files import changed_lines
from npuscope.table.formats import many
from npuscope.tile.script.settings import named_literals


def edits(old: Mapping[str, str], new: Mapping[str, str]) -> list[dict[str, object]]:
    """What was edited: every constant with its value before and after, else how many lines of a file."""
    found: list[dict[str, object]] = []
    for file, text in new.items():
        before = old.get(file)
        if before is None or before == text:
            continue
        was, now = _constants(before), _constants(text)
        changed = [name for name in now if name in was and was[name][0] != now[name][0]]
        found += [
            {"file": basename(file), "line": now[name][1], "text": f"{name[0]} {was[name][0]} → {now[name][0]}"}
            for name in changed
        ]
        if not changed:
            lines = [line for line in changed_lines(before, text) if line[2] != " "]
            place = next((after or ahead for ahead, after, _, _ in lines), 0)
            count = len([line for line in lines if line[2] == "+"]) or len(lines)
            found.append({"file": basename(file), "line": place, "text": many(count, "line")})
    return found


def _constants(text: str) -> dict[tuple[str, int], tuple[str, int]]:
    """Name and how many of it came before -> the text of its value and its line, where it is given a literal."""
    found: dict[tuple[str, int], tuple[str, int]] = {}
    seen: Counter[str] = Counter()
    for name, node in sorted(named_literals(text), key=lambda one: (one[1].lineno, one[1].col_offset)):
        found[name, seen[name]] = ast.unparse(node), node.lineno
        seen[name] += 1
    return found
