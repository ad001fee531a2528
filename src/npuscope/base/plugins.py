"""Readers and rules that other packages bring, by entry points of their pyproject.toml:

[project.entry-points."npuscope.readers"]
acme = "acme_npuscope.reader"        # a module with recognises(path) -> bool and read(path) -> Trace

[project.entry-points."npuscope.rules"]
acme-no-exp = "acme_npuscope.rules:RULE"   # a npuscope.check.rule.Rule
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any, NamedTuple

from npuscope.base.errors import NpuscopeError

READERS, RULES = "npuscope.readers", "npuscope.rules"


class Brought(NamedTuple):
    """What an entry point names, and who brings it."""

    name: str
    package: str
    thing: Any


@cache
def brought(group: str) -> tuple[Brought, ...]:
    """Everything that installed packages bring for a group, by name; what cannot be loaded is an error, not skipped."""
    found = []
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        package = entry.dist.name if entry.dist is not None else "an installed package"
        try:
            found.append(Brought(entry.name, package, entry.load()))
        except Exception as error:
            what = f"'{entry.name}' of {package} cannot be loaded ({type(error).__name__}: {error})"
            raise NpuscopeError(what, remedy="Mend or uninstall that package.") from error
    return tuple(found)
