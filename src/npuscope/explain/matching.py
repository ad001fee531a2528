"""Which kernels of two traces are the same: by name, then by a pair the user gave, then by the bare name.

A bare name has no template arguments, numbers, hashes or case: `MatMulV2_12` and `matmul_v2_7` meet. What has no
partner stays alone and shows up as new or gone. A program and its own capture are nearer: there a number at the end may
be part of the name (`simulate/anchor/names.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from npuscope.trace.intervals import Ints

_TEMPLATE = re.compile(r"<.*>|\(.*\)")
_NOISE = re.compile(r"[^a-z]+")


@dataclass(frozen=True)
class Match:
    """Kernels that count as one; `rule` says why: name, given, bare name, new or gone."""

    kernel: str
    in_a: tuple[str, ...]
    in_b: tuple[str, ...]
    rule: str


def bare(name: str) -> str:
    """A name without what differs between builds."""
    without = _TEMPLATE.sub("", name)
    return _NOISE.sub("", without.lower()) or name


def match_kernels(a: Sequence[str], b: Sequence[str], pairs: Mapping[str, str] | None = None) -> list[Match]:
    """Every kernel of A and of B in exactly one match. `pairs` maps names of A to names of B."""
    in_a, in_b = set(a), set(b)
    given = {x: y for x, y in (pairs or {}).items() if x in in_a and y in in_b}
    taken_b = set(given.values())
    matches = [Match(x, (x,), (y,), "given") for x, y in given.items()]
    common = {name for name in a if name in in_b and name not in given and name not in taken_b}
    matches += [Match(name, (name,), (name,), "name") for name in a if name in common]
    left_a = [name for name in a if name not in given and name not in common]
    left_b = [name for name in b if name not in taken_b and name not in common]
    by_bare_a, by_bare_b = _grouped(left_a), _grouped(left_b)
    for key in by_bare_a.keys() & by_bare_b.keys():
        names_a, names_b = by_bare_a.pop(key), by_bare_b.pop(key)
        matches.append(Match(names_a[0], names_a, names_b, "bare name"))
    matches += [Match(name, (name,), (), "gone") for names in by_bare_a.values() for name in names]
    matches += [Match(name, (), (name,), "new") for names in by_bare_b.values() for name in names]
    return matches


def places(names: Sequence[str], matches: Sequence[Match], side: str) -> Ints:
    """For each kernel of one side ("in_a" or "in_b") the number of its match."""
    where = {name: number for number, match in enumerate(matches) for name in getattr(match, side)}
    return np.array([where[name] for name in names], dtype=np.int64)


def _grouped(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(bare(name), []).append(name)
    return {key: tuple(found) for key, found in groups.items()}
