"""Kernel families by kernel type, and how each is priced: the table families.toml, checked."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from npuscope.trace.toml_file import decode_toml

Price = Literal[
    "matmul", "grouped", "prolog", "attention", "sparse_attention", "indexer",
    "bytes", "collective", "routed", "unpriced",
]  # fmt: skip


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What families.toml says of a family; the file explains the fields."""

    name: str
    price: Price
    patterns: tuple[str, ...] = ()
    unit: Literal["cube", "vector"] = "vector"
    ops: float = 0
    operands: tuple[int, int] = (0, 1)
    pools: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    table: bool = False
    reads: Literal["output"] | None = None
    output: float | None = None
    byte_bound: bool = False
    why: str = ""


class _Families(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    family: tuple[Rule, ...]


# a type that no rule knows: the bytes of its tensors are a floor, and nothing else is known
UNKNOWN_RULE = Rule("unknown", "bytes", byte_bound=True)


@lru_cache(maxsize=4096)
def rule_of(kernel_type: str) -> Rule:
    """The rule of a kernel type; `UNKNOWN_RULE` where none matches."""
    return next((rule for rule, pattern in _rules() if pattern.search(kernel_type)), UNKNOWN_RULE)


@lru_cache
def _rules() -> tuple[tuple[Rule, re.Pattern[str]], ...]:
    path = Path("families.toml")
    data = files("npuscope.forward.work").joinpath(path.name).read_bytes()
    rules = decode_toml(data, _Families, "a table of kernel families", path).family
    return tuple((rule, re.compile("|".join(f"(?:{p})" for p in rule.patterns), re.IGNORECASE)) for rule in rules)
