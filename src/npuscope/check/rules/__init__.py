"""The rules, one per file and called as the file is: `gm_round_trip.py` has gm-round-trip. Nothing else lies here.

A rule runs, is documented and can be selected because its file lies in this folder: there is no list of them. Other
packages bring theirs by an entry point.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from npuscope.base.errors import NpuscopeError
from npuscope.base.plugins import RULES, brought
from npuscope.check.findings import SEVERITIES
from npuscope.check.rule import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Ours and those that other packages bring, the worst first, then by name."""
    own = own_rules()
    found = [*own, *_brought_rules({rule.id for rule in own})]
    return tuple(sorted(found, key=lambda rule: (SEVERITIES.index(rule.severity), rule.id)))


def own_rules() -> tuple[Rule, ...]:
    """The rules of this folder."""
    return tuple(import_module(f"{__name__}.{module.name}").RULE for module in iter_modules(__path__))


def _brought_rules(taken: set[str]) -> list[Rule]:
    found = []
    for one in brought(RULES):
        if not isinstance(one.thing, Rule):
            raise NpuscopeError(f"'{one.name}' of {one.package} is no Rule", remedy="Uninstall it, or report it there.")
        if one.thing.id in taken:
            raise NpuscopeError(f"{one.package} brings a rule '{one.thing.id}', which there is", remedy="Uninstall it.")
        taken.add(one.thing.id)
        found.append(one.thing)
    return found
