"""The rules, a family per file, each one `Rule` at the top level of its file. Nothing else lies here.

A rule runs, is documented and can be selected because a file of this folder declares it: there is no list of them.
Other packages add theirs by an entry point.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from npuscope.base.errors import NpuscopeError
from npuscope.base.plugins import RULES, load_plugins
from npuscope.check.rule import SEVERITIES, Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """Ours and those that other packages add, the worst first, then by name."""
    found = {rule.id: rule for rule in own_rules()}
    for _, package, rule in load_plugins(RULES, Rule):
        if rule.id in found:
            raise NpuscopeError(f"{package} brings a rule '{rule.id}', which there is", remedy="Uninstall it.")
        found[rule.id] = rule
    return tuple(sorted(found.values(), key=lambda rule: (SEVERITIES.index(rule.severity), rule.id)))


def own_rules() -> tuple[Rule, ...]:
    """The rules of this folder, in the order of their ids."""
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    found = {thing.id: thing for module in modules for thing in vars(module).values() if isinstance(thing, Rule)}
    return tuple(found[id] for id in sorted(found))
