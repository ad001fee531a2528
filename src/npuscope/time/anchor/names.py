"""Which kernels of a capture are which of a program, by name.

A compiler numbers callables that share a name (`gate_proj_3`) and makes two functions of a mixed kernel (`_aic`,
`_aiv`). A name that both sides have is matched first, so that a kernel that is called `stage_2` stays itself.
Two traces of anything are matched more boldly (`analysis/matching.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from npuscope.tile.record.model import short_name

_TAIL = re.compile(r"(_\d+|_aic|_aiv|_mix)$")


@dataclass(frozen=True)
class Pair:
    """A kernel with the names that each side has for it; one side may have none."""

    name: str
    simulated: tuple[str, ...]
    measured: tuple[str, ...]


def paired(simulated: Iterable[str], measured: Iterable[str]) -> list[Pair]:
    """Every name of both sides in one pair: first those of the simulation in its order, then what only was measured."""
    ours, theirs = list(dict.fromkeys(simulated)), list(dict.fromkeys(measured))
    own = {short_name(name) for name in ours}
    key_of: dict[str, str] = {}  # a measured name -> the simulated one it is, as it stands or with fewer endings
    for name in theirs:
        if known := [one for one in _shorter(name) if one in own]:
            key_of[name] = known[0]
    met = set(key_of.values())
    free = {_shorter(name)[-1] for name in theirs if name not in key_of}
    own_key = {}  # a simulated name that nobody has yet -> one met already, or what it shares without endings
    for name in ours:
        first, *shorter = _shorter(name)
        others = [one for one in shorter if one in met] + [one for one in shorter[-1:] if one in free]
        own_key[name] = first if first in met or not others else others[0]
    for name in theirs:
        bare = _shorter(name)[-1]
        key_of.setdefault(name, bare if bare in own_key.values() else short_name(name))
    return [
        Pair(
            key,
            tuple(name for name in ours if own_key[name] == key),
            tuple(name for name in theirs if key_of[name] == key),
        )
        for key in dict.fromkeys([*own_key.values(), *key_of.values()])
    ]


def _shorter(name: str) -> list[str]:
    """The name without its factory, then with one ending less each."""
    found = [short_name(name)]
    while (less := _TAIL.sub("", found[-1])) not in (found[-1], ""):
        found.append(less)
    return found
