"""A setting's value written into the text of a program, in place of the literal that stands there."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from npuscope.base.errors import BadInput
from npuscope.base.unsaved import source_bytes
from npuscope.tile.script.places import SettingPlace, places_named, places_of, value_for


def named_literals(text: str) -> Iterator[tuple[str, ast.expr]]:
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
            before, text = found.get(path) or ((text_of := _text_of(path)), text_of)
            found[path] = before, _written(text, place, value_for(place, value, name), name)
    return found


def _text_of(path: Path) -> str:
    try:
        return source_bytes(path).decode()
    except UnicodeDecodeError as error:
        raise BadInput("is not UTF-8, so nothing is written into it", path=path) from error


def _written(text: str, place: SettingPlace, value: object, name: str) -> str:
    """A text with another literal at a place."""
    called = "default" if place.kind == "option" else place.name.rpartition(".")[2]
    known = [
        node
        for one, node in named_literals(text)
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
