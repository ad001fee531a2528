"""The table kernels.toml, read and checked; the file explains its keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from npuscope.base.errors import BadInput
from npuscope.base.toml_file import decode_toml, line_of

By = Literal[
    "matmul", "grouped", "prolog", "attention", "sparse_attention", "indexer",
    "bytes", "collective", "routed", "unpriced",
]  # fmt: skip
Kind = Literal["task", "comm", "copy"]
Area = Literal["QKV", "attention", "out_proj", "MLP", "norm", "sampling", "comm"]
Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
Landmark = Literal["attention", "attention_backward", "embedding", "sampling", "sampling_or_layer", "none"]
Phase = Literal["prefill", "decode"]
Law = Literal["products", "attention"]

WHAT = "a table of kernels"
PATH = Path("npuscope/chip/kernels/kernels.toml")


class Formula(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How FLOPs and bytes follow from a call's tensors."""

    by: By
    ops: float = 0
    operands: tuple[int, int] = (0, 1)
    pools: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()
    table: bool = False
    reads: Literal["output"] | None = None
    output: float | None = None
    floor: bool = False
    in_floats: bool = False
    why: str = ""


class Rule(msgspec.Struct, frozen=True):
    """The family of a kernel with its work."""

    family: str
    work: Formula


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the table says of the names that an entry knows."""

    names: dict[str, tuple[str, ...]] = {}
    whole: tuple[str, ...] = ()
    found: tuple[str, ...] = ()
    family: str | None = None
    work: Formula | None = None
    align: str | None = None
    area: Area | None = None
    kind: Kind | None = None
    collective: Collective | None = None
    landmark: Landmark | None = None
    phase: Phase | None = None
    law: Law | None = None

    @property
    def rule(self) -> Rule | None:
        return Rule(self.family, self.work) if self.family is not None and self.work is not None else None

    @property
    def whole_names(self) -> tuple[str, ...]:
        """Every pattern for whole names."""
        return (*(pattern for patterns in self.names.values() for pattern in patterns), *self.whole)


class Group(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Functions that count as one."""

    name: str
    begins: tuple[str, ...]


class Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    kernel: tuple[Entry, ...]
    group: tuple[Group, ...] = ()


@lru_cache
def known() -> Table:
    """The table that comes with npuscope."""
    return table_of(files("npuscope.chip.kernels").joinpath(PATH.name).read_bytes(), PATH)


def table_of(data: bytes, path: Path) -> Table:
    """A table from its text; what is wrong with it is an error with the line."""
    table = decode_toml(data, Table, WHAT, path)
    seen: set[tuple[str, str]] = set()
    for number, entry in enumerate(table.kernel):
        for key, wrong in _mistakes(entry, seen):
            raise BadInput(wrong, path=path, line=line_of(data, "kernel", number, key))
    return table


def _mistakes(entry: Entry, seen: set[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Keys of an entry that cannot stand as they are, with the reason; `seen`: the names of the entries before."""
    if not (entry.whole_names or entry.found):
        yield "", "an entry that knows no name: it has neither names nor whole nor found"
    if (entry.family is None) != (entry.work is None):
        yield ("work" if entry.family is None else "family"), "family and work go together"
    said = [getattr(entry, key) for key in ("work", "area", "kind", "collective", "landmark", "phase", "law")]
    if not any(said) and not entry.names and entry.align is None:
        yield "", "an entry that says nothing of the names that it knows"
    if entry.align is not None and not entry.found:
        yield "align", "align names what `found` finds, and there is no `found`"
    if entry.work is not None and (entry.work.by == "unpriced") != bool(entry.work.why):
        yield "work", "an unpriced kernel says why, and no other does"
    for key, patterns in (("whole", entry.whole_names), ("found", entry.found)):
        for pattern in patterns:
            if (wrong := _broken(pattern, key == "whole")) is not None:
                yield _place(entry, pattern, key), f"pattern '{pattern}' {wrong}"
            if (key, pattern) in seen and entry.rule is not None:
                yield _place(entry, pattern, key), f"pattern '{pattern}' stands in an entry before"
            if entry.rule is not None:
                seen.add((key, pattern))


def _broken(pattern: str, plain: bool) -> str | None:
    if plain and re.search(r"[A-Z_ ]", pattern):
        return "can fit no plain name, which is small letters and digits"
    try:
        re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        return f"is no regular expression ({error})"
    return None


def _place(entry: Entry, pattern: str, key: str) -> str:
    return "names" if any(pattern in patterns for patterns in entry.names.values()) else key
