"""What a program cuts into pieces of a constant's or a field's size, read from its text.

`SLABS = HIDDEN // SLAB` cuts HIDDEN into pieces of SLAB; `range(0, K, TILE)` and `K % TILE` say the same. Names that
merely stand for a field (`SLAB = t.slab`) are followed.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from npuscope.tile.script.places import SettingPlace

RANGES = frozenset({"range", "parallel", "pipeline", "spmd", "unroll"})


@dataclass(frozen=True)
class Cuts:
    """By the last word of a name: what is cut into pieces of it, with its size where the text tells, else 0."""

    found: Mapping[str, Mapping[str, int]]

    def by(self, place: SettingPlace) -> dict[str, int]:
        """What is cut by the value at a place."""
        return dict(self.found.get(place.name.rpartition(".")[2], {}))


def cuts_of(files: Iterable[Path], places: Iterable[SettingPlace]) -> Cuts:
    """All cuts in these files. Sizes are those of constants and fields that are whole numbers."""
    trees = []
    for file in files:
        try:
            trees.append(ast.parse(file.read_bytes()))
        except (OSError, SyntaxError, ValueError):
            continue
    stands_for = _aliases(trees)
    sizes: dict[str, set[int]] = defaultdict(set)
    for place in places:
        if isinstance(place.value, int) and not isinstance(place.value, bool):
            sizes[place.name.rpartition(".")[2]].add(place.value)
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for tree in trees:
        for whole, piece in _pairs(tree):
            for name in _names(piece, stands_for):
                for other in _names(whole, stands_for) - {name}:
                    known = sizes.get(other, set())
                    found[name][other] = next(iter(known)) if len(known) == 1 else 0
    return Cuts(found)


def _pairs(tree: ast.Module) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod):
            left = node.left.operand if isinstance(node.left, ast.UnaryOp) else node.left
            yield left, node.right
        elif isinstance(node, ast.Call) and len(node.args) == 3:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in RANGES:
                yield node.args[1], node.args[2]


def _aliases(trees: Iterable[ast.Module]) -> dict[str, set[str]]:
    """Names that stand for others: `SLAB = t.slab`, also several in a line."""
    found: dict[str, set[str]] = defaultdict(set)
    for tree in trees:
        for node in ast.walk(tree):
            if not isinstance(node, ast.Assign) or len(node.targets) != 1:
                continue
            target, value = node.targets[0], node.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            for one, part in pairs:
                if isinstance(one, ast.Name) and isinstance(part, ast.Attribute):
                    found[one.id].add(part.attr)
    return found


def _names(node: ast.expr, stands_for: Mapping[str, set[str]]) -> set[str]:
    """The name that an expression is, or those of the fields that it stands for."""
    if isinstance(node, ast.Attribute):
        return {node.attr}
    if isinstance(node, ast.Name):
        return stands_for.get(node.id) or {node.id}
    return set()
