"""Which places of a program a setting's name means, and its value for each of them.

A full name is always understood (`QWEN3.tiles.tk`, `config.ROWS`, `Tiles.tk`); words in front or between may be left
out as long as one place is meant. A field's bare name means the default of its class where an object takes it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from pathlib import Path

from npuscope.base.errors import BadInput
from npuscope.tile.record.rings import NAMES
from npuscope.tile.script.places import UNTOLD, Place, Places

ON, OFF = frozenset({"1", "true", "yes", "on"}), frozenset({"0", "false", "no", "off"})
RUNTIME = frozenset(f"PTO2_{name.upper()}" for name in NAMES.values())  # variables that every program's run asks for
MOST_TOLD, MOST_NEAR = 12, 6


class UnknownSetting(BadInput):
    """A name that a script has no use for."""


def meant(name: str, places: Places, file: Path) -> tuple[Place, ...]:
    """The places that a name means; none where only the run can tell. Refused: an unknown name, and one of several."""
    direct = [place for place in places.places if _is_direct(place, name)]
    if direct:
        return tuple(direct)
    wanted = name.split(".")
    found = _chosen([place for place in places.places if _within(wanted, place.words)], name)
    if not found:
        lower = name.lower().split(".")
        found = _chosen([p for p in places.places if _within(lower, [word.lower() for word in p.words])], name)
    if not found:
        found = _of_unknown_class(wanted, places)
    if len({(place.name, place.file) for place in found}) > 1:
        each = sorted({".".join(_shortest(place, found)) for place in found})
        raise UnknownSetting(f"{name} may be any of {', '.join(each[:MOST_TOLD])}", path=file, remedy="Name one.")
    if not found and name not in RUNTIME and not places.computed:
        raise unknown([name], places, file)
    return tuple(found[:1])


def unknown(names: Sequence[str], places: Places, file: Path) -> UnknownSetting:
    """What is told of names that a program does not have."""
    known = offered(places)
    near = known if len(known) <= MOST_TOLD else nearest(names, known)
    kinds = "option, constant, field or environment variable"
    begin = "It has" if near is known else "The nearest it has are"
    return UnknownSetting(
        f"it has no {kinds} {', '.join(names)}", path=file, remedy=f"{begin}: {', '.join(near)}." if near else ""
    )


def offered(places: Places) -> list[str]:
    """The names to tell of: options, the script's own constants, then what lies in modules and classes."""
    told = [p for p in places.places if p.value is not UNTOLD or p.kind in ("option", "variable")]
    own = [p.target for p in told if p.kind == "constant" and not p.module and not p.owner]
    options = [p.target for p in told if p.kind == "option"]
    rest = [p.name for p in told if not p.target.startswith("_") and not (p.kind == "field" and p.taken)]
    return list(
        dict.fromkeys([*own, *options, *(name for name in rest if f"--{name.replace('_', '-')}" not in options)])
    )


def nearest(names: Iterable[str], known: Sequence[str]) -> list[str]:
    """Those of the known names that look most like what was written."""

    def likeness(one: str) -> float:
        last = one.rpartition(".")[2].lstrip("-").lower().replace("-", "_")
        words = [name.rpartition(".")[2].lower() for name in names]
        whole = max(SequenceMatcher(None, word, last).ratio() for word in words)
        shared = max(len({*word.split("_")} & {*last.split("_")}) for word in words)
        return whole + 0.3 * shared

    each: dict[str, str] = {}  # one name per field: the shortest, a class's own
    for one in sorted(known, key=lambda one: (one.count("."), one)):
        each.setdefault(one.rpartition(".")[2], one)
    return sorted(each.values(), key=lambda one: -likeness(one))[:MOST_NEAR]


def value_for(place: Place, text: str, name: str) -> object:
    """The value that a text is at this place: a number where a number stands, on or off where True or False does."""
    told: object = text
    try:
        told = ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        told = text
    before = place.value
    if isinstance(before, bool):
        if text.lower() not in ON | OFF:
            raise BadInput(f"{name} is {before}; it takes 0 or 1, not '{text}'", path=place.file, line=place.line)
        return text.lower() in ON
    if isinstance(before, int | float) and (isinstance(told, bool) or not isinstance(told, int | float)):
        raise BadInput(f"{name} is {before}; it takes a number, not '{text}'", path=place.file, line=place.line)
    return text if isinstance(before, str) and not isinstance(told, str) else told


def _is_direct(place: Place, name: str) -> bool:
    """An option, a constant of the script itself, a variable: they go before all else, and together."""
    if place.kind == "option":
        return place.target in (f"--{name.lower().replace('_', '-')}", f"--{name.lower()}")
    own = place.kind == "constant" and not place.module and not place.owner
    return place.name == name and (own or place.kind == "variable")


def _within(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Whether words are a name with some in front or between left out."""
    if not wanted or wanted[-1] != words[-1]:
        return False
    rest = iter(words[:-1])
    return all(word in rest for word in wanted[:-1])


def _chosen(found: list[Place], name: str) -> list[Place]:
    """The likeliest of several that a name fits."""
    found = [place for place in found if place.kind not in ("option", "variable")]
    exact = [place for place in found if place.name == name]
    if exact:
        return exact
    defaults = [place for place in found if place.kind == "default"]
    for some in (
        [place for place in defaults if place.taken],
        [place for place in found if place.kind != "default"],
        defaults,
    ):
        if some:
            return some
    return []


def _of_unknown_class(wanted: Sequence[str], places: Places) -> list[Place]:
    """`CONFIG.tile` where only the run knows what CONFIG is."""
    objects = [p for p in places.places if p.kind == "constant" and not p.owner and p.value is UNTOLD]
    with_fields = {(p.file, p.target) for p in places.places if p.kind == "field"}
    return [
        replace(p, kind="field", name=".".join(wanted), path=tuple(wanted[1:]))
        for p in objects
        if len(wanted) > 1 and p.target == wanted[0] and (p.file, p.target) not in with_fields
    ]


def _shortest(place: Place, among: Sequence[Place]) -> tuple[str, ...]:
    same = [other for other in among if other.name == place.name and other.file != place.file]
    return place.words if same else tuple(place.name.split("."))
