"""What can be turned in a program, and to which values: its options, constants, fields of configurations, jit options.

for knob in knobs_of("decode_layer.py", ["--max-seq", "512"]):
    knob.name, knob.value, knob.values  # "tk", 64, (32, 64, 128); `--set tk=128` turns it

A whole number's values are those near it that divide what the program cuts into pieces of it, and that the classes of
its configurations take. Whether a value fits on chip only a run of the variant tells.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.unsaved import source_bytes
from npuscope.tile.fault import NeedsValues
from npuscope.tile.script.observed import Reads, decides, is_read, reads
from npuscope.tile.script.places import NOT_IN_TEXT, Kind, Places, SettingPlace, UnknownSetting, places_named, places_of
from npuscope.tile.script.run import run_script
from npuscope.tile.script.settings import changed_object

ALIGNED = 16  # elements: the side of a cube tile, which tiles keep to that kept to it
NEAR = 8  # times as much or as little
MOST_VALUES = 11
RANGES = frozenset({"range", "parallel", "pipeline", "spmd", "unroll"})
_Object = Mapping[tuple[str, str], object]


@dataclass(frozen=True)
class Knob:
    """One thing to turn. `name` is what `--set` takes; `values` has the present one, in order; empty: anything goes.

    `cuts` has what is cut into pieces of it: a knob without is more likely a size of the problem than a tile's.
    """

    name: str
    kind: Kind
    value: object
    values: tuple[object, ...]
    file: str
    line: int
    text: str  # what it is
    cuts: tuple[str, ...] = ()


def knobs_of(file: str | Path, arguments: Sequence[str] = ()) -> tuple[Knob, ...]:
    """The knobs of a program that this run of it reads; it is recorded once, by shape.

    A program that cannot be run has those that its text shows.
    """
    path = Path(file)
    with reads() as seen:
        try:
            run_script(path, arguments, "shapes")
        except (NpuscopeError, NeedsValues, SystemExit):
            seen.seen.clear()
    return knobs_in(places_of(path), seen, path)


def knobs_in(places: Places, seen: Reads, file: Path) -> tuple[Knob, ...]:
    """The knobs among a program's places, given what a run of it read."""
    used = [place for place in places.places if _is_used(place, places.places, seen)]
    cuts = cuts_of([Path(name) for name in places.files], used)
    found: dict[tuple[str, int, str], Knob] = {}
    for place in used:
        knob = _knob(place, places, cuts, seen.objects, file)
        if knob is not None:
            found.setdefault((knob.file, knob.line, knob.name), knob)
    return tuple(sorted(found.values(), key=lambda knob: (not knob.cuts, knob.kind == "option", not knob.values)))


def _is_used(place: SettingPlace, all_of_them: Iterable[SettingPlace], seen: Reads) -> bool:
    """Whether it is there to be turned: not private, and read where a run can tell."""
    if place.kind == "variable" or place.name.rpartition(".")[2].startswith("_"):
        return False
    if any(other is not place and decides(other, place) for other in all_of_them):
        return False  # its class's default stands for it
    return place.kind not in ("field", "default") or not seen.seen or is_read(place, all_of_them, seen)


def _knob(place: SettingPlace, places: Places, cuts: Cuts, objects: _Object, file: Path) -> Knob | None:
    value = place.value
    name = _short(place, places, file)
    if name is None or (value is NOT_IN_TEXT and place.kind != "option"):
        return None
    if place.choices or isinstance(value, bool):
        values = place.choices or (False, True)
        return Knob(
            name, place.kind, None if value is NOT_IN_TEXT else value, values, place.file, place.line, _about(place)
        )
    if place.kind == "option" and (value is NOT_IN_TEXT or value is None):
        return Knob(name, place.kind, None, (), place.file, place.line, _about(place))
    if not isinstance(value, int) or value < 1:
        return None
    cut = cuts.by(place)
    near = [one for one in _near(value, cut.values()) if all(size % one == 0 for size in cut.values() if size)]
    near = [one for one in near if _is_taken(place, one, places, objects)]
    values = tuple(sorted({*near, value})) if cut or place.kind != "option" else ()
    description = _about(place)
    if cut:
        named = (f"{what} ({size:,})" if size else what for what, size in list(cut.items())[:4])
        description += "; cuts " + ", ".join(named)
    return Knob(name, place.kind, value, values, place.file, place.line, description, tuple(cut))


def _about(place: SettingPlace) -> str:
    kinds = {
        "option": f"option {place.target}",
        "constant": f"constant of {place.owner or Path(place.file).name}",
        "default": f"default of {place.owner}",
        "field": f"field of {place.target}",
        "jit": f"option of @jit on {place.owner}",
    }
    return kinds[place.kind]


def _short(place: SettingPlace, places: Places, file: Path) -> str | None:
    """The shortest name by which `--set` finds exactly this place."""
    for name in (place.name.rpartition(".")[2], place.name, ".".join(place.words)):
        try:
            if places_named(name, places, file) == (place,):
                return name
        except UnknownSetting:
            continue
    return None


def _near(value: int, sizes: Iterable[int]) -> list[int]:
    """Halves and doubles, and what divides the sizes that are cut, near the value and aligned as it is."""
    step = ALIGNED if value % ALIGNED == 0 else 1
    found = {value * 2**power for power in range(4)} | {
        value // 2**power for power in range(4) if value % 2**power == 0
    }
    for size in filter(None, sizes):
        found |= {size // count for count in range(1, NEAR * size // value + 1) if size % count == 0}
    fit = [one for one in found if one % step == 0 and value <= one * NEAR and one <= value * NEAR and one > 0]
    nearest = sorted(fit, key=lambda one: (max(one, value) / min(one, value), one))
    return nearest[:MOST_VALUES]


def _is_taken(place: SettingPlace, value: int, places: Places, objects: _Object) -> bool:
    """Whether the class of a configuration takes the value; what no run has made is believed."""
    if place.kind == "field":
        holders = [place]
    else:
        holders = [other for other in places.places if place.kind == "default" and decides(place, other)]
    made = [(objects[one.file, one.target], one) for one in holders if (one.file, one.target) in objects]
    for whole, one in made:
        try:
            changed_object(whole, one.path, value, one)
        except NpuscopeError:
            return False
    return True


@dataclass(frozen=True)
class Cuts:
    """By the last word of a name: what is cut into pieces of it, with its size where the text tells, else 0."""

    found: Mapping[str, Mapping[str, int]]

    def by(self, place: SettingPlace) -> dict[str, int]:
        """What is cut by the value at a place."""
        return dict(self.found.get(place.name.rpartition(".")[2], {}))


def cuts_of(files: Iterable[Path], places: Iterable[SettingPlace]) -> Cuts:
    """All cuts in these files. Sizes are those of constants and fields that are whole numbers.

    `SLABS = HIDDEN // SLAB` cuts HIDDEN into pieces of SLAB; `range(0, K, TILE)` and `K % TILE` say the same. Names
    that merely stand for a field (`SLAB = t.slab`) are followed.
    """
    trees = []
    for file in files:
        try:
            trees.append(ast.parse(source_bytes(file)))
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
