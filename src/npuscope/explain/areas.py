"""Areas of a model (QKV, attention, MLP, …) from kernel names: a user's own rules before the table of kernels."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from npuscope.base.errors import BadInput
from npuscope.base.toml_file import read_toml
from npuscope.chip.kernels import area_of as known_area

WHAT = 'a file of area rules ([[area]] with name = "…" and patterns = ["…"])'


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names that any of the patterns finds belong to the area."""

    name: str
    patterns: list[str]


class Areas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    area: list[Area]


Rules = tuple[tuple[str, re.Pattern[str]], ...]  # of the user's own


def area_rules(path: str | Path | None = None) -> Rules:
    """The rules of a TOML file, which come before the table of kernels."""
    return () if path is None else _compiled(read_toml(Path(path), Areas, WHAT), Path(path))


def area_of(kernel: str, rules: Rules = ()) -> str:
    """The area of a kernel's name: by the first own rule that finds something, else by the table of kernels."""
    own = next((name for name, pattern in rules if pattern.search(kernel)), None)
    return known_area(kernel) if own is None else own


def _compiled(areas: Areas, path: Path) -> Rules:
    rules = []
    for area in areas.area:
        try:
            rules.append((area.name, re.compile("|".join(f"(?:{p})" for p in area.patterns), re.IGNORECASE)))
        except (re.error, OverflowError, RecursionError) as error:
            raise BadInput(
                f"area '{area.name}' has a pattern that is no regular expression ({error})", path=path
            ) from error
    return tuple(rules)
