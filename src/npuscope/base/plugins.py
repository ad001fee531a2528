"""Other packages: those that an extra needs, and readers, writers and rules by entry points of their pyproject.toml:

[project.entry-points."npuscope.readers"]
acme = "acme_npuscope.reader:READER"       # a npuscope.trace.formats.Reader

[project.entry-points."npuscope.rules"]
acme-no-exp = "acme_npuscope.rules:RULE"   # a npuscope.check.rule.Rule
"""

from __future__ import annotations

import re
import shlex
import sys
from functools import cache
from importlib.metadata import entry_points, requires
from typing import Any, NamedTuple

from npuscope.base.errors import NpuscopeError

READERS, WRITERS, RULES = "npuscope.readers", "npuscope.writers", "npuscope.rules"


def not_installed(what: str, extra: str) -> NpuscopeError:
    """What an extra needs is not here: with the one command that brings it, wherever npuscope itself came from."""
    of_extra = re.compile(rf"extra == ['\"]{extra}['\"]")
    wanted = [line.partition(";")[0].strip() for line in requires("npuscope") or () if of_extra.search(line)]
    command = shlex.join([sys.executable, "-m", "pip", "install", *wanted])
    return NpuscopeError(f"{what} not installed", remedy=f"This brings what is missing: {command}")


class Plugin(NamedTuple):
    """What an entry point names, and the package that it comes from."""

    name: str
    package: str
    value: Any


@cache
def load_plugins(group: str, kinds: type | tuple[type, ...]) -> tuple[Plugin, ...]:
    """What installed packages have for a group, by name; one that is broken or of another kind is an error."""
    plugins = []
    for entry in sorted(entry_points(group=group), key=lambda entry: entry.name):
        package = entry.dist.name if entry.dist is not None else "an installed package"
        try:
            value = entry.load()
        except Exception as error:
            what = f"'{entry.name}' of {package} cannot be loaded ({type(error).__name__}: {error})"
            raise NpuscopeError(what, remedy="Mend or uninstall that package.") from error
        if not isinstance(value, kinds):
            kind = kinds if isinstance(kinds, type) else kinds[0]
            what = f"'{entry.name}' of {package} is no {kind.__name__}"
            raise NpuscopeError(what, remedy="Uninstall it, or report it there.")
        plugins.append(Plugin(entry.name, package, value))
    return tuple(plugins)
