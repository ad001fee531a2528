"""Areas of a model (QKV, attention, MLP, …) from kernel names, by a table of rules that a user can extend."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

import msgspec

from npuscope.errors import BadInput
from npuscope.trace.toml_file import decode_toml, read_toml

OTHER = "other"
WHAT = 'a file of area rules ([[area]] with name = "…" and patterns = ["…"])'


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Names that any of the patterns finds belong to the area."""

    name: str
    patterns: list[str]


class Areas(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file."""

    area: list[Area]


Rules = tuple[tuple[str, re.Pattern[str]], ...]


def area_rules(path: str | Path | None = None) -> Rules:
    """The rules of a TOML file, then those that come with npuscope; the first that matches decides."""
    own = () if path is None else _compiled(read_toml(Path(path), Areas, WHAT), Path(path))
    return (*own, *_built_in())


def area_of(kernel: str, rules: Rules) -> str:
    """The area of a kernel's name; `other` where no rule matches."""
    return next((name for name, pattern in rules if pattern.search(kernel)), OTHER)


@lru_cache
def _built_in() -> Rules:
    path = Path("areas.toml")
    return _compiled(decode_toml(files("npuscope.analysis").joinpath(path.name).read_bytes(), Areas, WHAT, path), path)


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
