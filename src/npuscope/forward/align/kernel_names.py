"""Kernels of a prediction and of a capture that are one thing: MatMulV3, aten.mm.default and aclnnMatmul_…_MatMulV2.

The table of kernels has the names that many frameworks share. A name it does not know is a family of its own, under
the name without version and instance number; pairs given by the user come before the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from npuscope.base.errors import NpuscopeError
from npuscope.chip.kernels import aligned_name, plain, stem


def families_of(names: Iterable[str], others: Iterable[str] = ()) -> dict[str, str]:
    """Each name's family. Names no rule knows meet by their plain form and show the stem that sorts first."""
    distinct = sorted({*names, *others})
    shown: dict[str, str] = {}
    for name in distinct:
        shown.setdefault(plain(name), stem(name))
    return {name: aligned_name(name) or shown[plain(name)] for name in distinct}


def mapped(families: Mapping[str, str], predicted: Iterable[str], measured: Iterable[str],
           pairs: Mapping[str, str]) -> dict[str, str]:  # fmt: skip
    """The families of predicted names, where the user's pairs (predicted name or family = measured one) come first."""
    asked = dict.fromkeys(predicted)
    there = {*measured} | {families[name] for name in measured}
    given: dict[str, str] = {}
    for ours, theirs in pairs.items():
        found = [name for name in asked if ours in (name, families[name])]
        if not found or theirs not in there:
            side, name = ("prediction", ours) if not found else ("measured pass", theirs)
            raise NpuscopeError(f"--map: '{name}' is no kernel of the {side}", remedy="It takes predicted=measured.")
        given |= dict.fromkeys(found, families.get(theirs, theirs))
    return {name: given.get(name, families[name]) for name in asked}
