"""Which kernels of two traces are the same.

By name, then by a pair the user gave, then by the bare name, without template arguments, numbers, hashes or case:
`MatMulV2_12` and `matmul_v2_7` meet. What has no partner shows up as new or gone. (A program and its own capture are
nearer: there a number at the end may be part of the name, `time/measured/observed.py`.)
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass

_TEMPLATE = re.compile(r"<.*>|\(.*\)")
_NOISE = re.compile(r"[^a-z]+")


@dataclass(frozen=True)
class Match:
    """Kernels that count as one; `rule` says why: name, given, bare name, new or gone."""

    kernel: str
    in_a: tuple[str, ...]
    in_b: tuple[str, ...]
    rule: str

    @property
    def other_names(self) -> str | None:
        """The names in B, where they are others."""
        return ", ".join(self.in_b) if self.rule in ("given", "bare name") else None


def check_pairs(pairs: Mapping[str, str] | None, a: Sequence[str], b: Sequence[str]) -> None:
    """Refuse pairs of kernels that are not there."""
    for x, y in (pairs or {}).items():
        if x not in a or y not in b:
            raise NpuscopeError(f"'{x}' is no kernel of A, or '{y}' none of B, so they cannot be matched")


def bare(name: str) -> str:
    """A name without what differs between builds."""
    return _NOISE.sub("", _TEMPLATE.sub("", name).lower()) or name


def match_kernels(a: Sequence[str], b: Sequence[str], pairs: Mapping[str, str] | None = None) -> list[Match]:
    """Every kernel of A and of B in exactly one match. `pairs` maps names of A to names of B."""
    in_a, in_b = set(a), set(b)
    given = {x: y for x, y in (pairs or {}).items() if x in in_a and y in in_b}
    taken_b = set(given.values())
    matches = [Match(x, (x,), (y,), "given") for x, y in given.items()]
    common = {name for name in a if name in in_b and name not in given and name not in taken_b}
    matches += [Match(name, (name,), (name,), "name") for name in a if name in common]
    left_a, left_b = dict[str, list[str]](), dict[str, list[str]]()
    for names, taken, left in ((a, given.keys(), left_a), (b, taken_b, left_b)):
        for name in (name for name in names if name not in taken and name not in common):
            left.setdefault(bare(name), []).append(name)
    for key in left_a.keys() & left_b.keys():
        names_a, names_b = tuple(left_a.pop(key)), tuple(left_b.pop(key))
        matches.append(Match(names_a[0], names_a, names_b, "bare name"))
    matches += [Match(name, (name,), (), "gone") for names in left_a.values() for name in names]
    matches += [Match(name, (), (name,), "new") for names in left_b.values() for name in names]
    return matches
