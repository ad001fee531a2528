"""Every op by its name and by its spellings; `add` makes another one known."""

from __future__ import annotations

import difflib

from npuscope.base.errors import NpuscopeError
from npuscope.ops import cube, elementwise, reductions, shaping, sorting, transfers
from npuscope.ops.spec import OpRole, OpSpec

FAMILIES: dict[str, list[OpSpec]] = {
    "Products": [*cube.ALL],
    "Element by element": [*elementwise.ALL],
    "A column or a row over a tile": [*elementwise.SPREADS],
    "Reductions": [*reductions.ALL],
    "Shapes and fills": [*shaping.ALL],
    "Sorting, gathering, scattering": [*sorting.ALL],
    "Moving data": [*transfers.ALL],
    "Numbers and single elements": [*transfers.NUMBERS],
    "Order": [*transfers.ORDER],
}
ADDED = "Added"
BY_NAME: dict[str, OpSpec] = {}
BY_SPELLING: dict[str, OpSpec] = {}


def add(spec: OpSpec) -> None:
    """Makes an op of one's own known, to programs, to time and to the reference."""
    _enter(spec)
    FAMILIES.setdefault(ADDED, []).append(spec)


def _enter(spec: OpSpec) -> None:
    if spec.name in BY_NAME:
        raise NpuscopeError(f"there are two ops called {spec.name}")
    for spelling in spec.names:
        if spelling in BY_SPELLING:
            raise NpuscopeError(f"{spelling} means {BY_SPELLING[spelling].name} and {spec.name}")
    BY_NAME[spec.name] = spec
    BY_SPELLING.update(dict.fromkeys(spec.names, spec))


def spec_of(name: str) -> OpSpec:
    """The op of a recorded name."""
    return BY_NAME[name]


def find(text: str) -> OpSpec:
    """The op that somebody asks for, by its name or by one of its spellings, with or without `pl.`"""
    bare = text.removeprefix("pl.")
    spec = BY_NAME.get(bare) or BY_SPELLING.get(bare) or BY_SPELLING.get(text)
    if spec is None and bare.startswith(("tile.", "tensor.")):
        spec = BY_SPELLING.get(bare.partition(".")[2])
    if spec is None:
        near = difflib.get_close_matches(bare, [*BY_NAME, *BY_SPELLING], n=1, cutoff=0.4)
        remedy = f"The nearest is {near[0]}." if near else "npuscope ops lists them."
        raise NpuscopeError(f"no op '{text}'", remedy=remedy)
    return spec


def spelled(*roles: OpRole) -> frozenset[str]:
    """What programs call the ops that have one of the roles, without their namespace."""
    return frozenset(text.rpartition(".")[2] for text, spec in BY_SPELLING.items() if spec.is_a(*roles))


for _family in FAMILIES.values():
    for _spec in _family:
        _enter(_spec)
