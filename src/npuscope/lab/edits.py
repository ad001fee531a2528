"""Edits of a program's text: what changed from one save to the next in few words, and a setting's value written in."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from os.path import basename
from pathlib import Path

from npuscope.base.errors import BadInput
from npuscope.lab.payload.files import changed_lines
from npuscope.table.formats import many
from npuscope.tile.script.places import SettingPlace, places_named, places_of, value_for


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
    for name, node in sorted(_named_literals(text), key=lambda one: (one[1].lineno, one[1].col_offset)):
        found[name, seen[name]] = ast.unparse(node), node.lineno
        seen[name] += 1
    return found


def _named_literals(text: str) -> Iterator[tuple[str, ast.expr]]:
    """Literals that are assigned to a name or passed by one; nothing of a text that is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        pairs: list[tuple[ast.expr, ast.expr]] = []
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            pairs = [(node.target, node.value)]
        elif isinstance(node, ast.keyword) and node.arg is not None:
            pairs = [(ast.Name(node.arg), node.value)]
        for name, part in pairs:
            if isinstance(name, ast.Name) and isinstance(part, ast.Constant | ast.UnaryOp):
                yield name.id, part


def with_settings(file: Path, settings: Mapping[str, str]) -> dict[Path, tuple[str, str]]:
    """The files of a program that settings change: each one's text before and with their values written in."""
    places = places_of(file)
    found: dict[Path, tuple[str, str]] = {}
    for name, value in settings.items():
        for place in places_named(name, places, file):
            path = Path(place.file)
            before, text = found.get(path) or ((text_of := path.read_bytes().decode()), text_of)
            found[path] = before, _written(text, place, value_for(place, value, name), name)
    return found


def _written(text: str, place: SettingPlace, value: object, name: str) -> str:
    """A text with another literal at a place."""
    called = "default" if place.kind == "option" else place.name.rpartition(".")[2]
    known = [
        node
        for one, node in _named_literals(text)
        if one == called and ast.literal_eval(node) == place.value and node.lineno >= place.line
    ]
    if not known:
        raise BadInput(f"{name} is no plain value here, so it is not written", path=place.file, line=place.line)
    node = min(known, key=lambda one: one.lineno)
    lines = text.encode().splitlines(keepends=True)
    line = lines[node.lineno - 1]
    assert node.end_col_offset is not None
    lines[node.lineno - 1] = line[: node.col_offset] + repr(value).encode() + line[node.end_col_offset :]
    return b"".join(lines).decode()
