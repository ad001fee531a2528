"""The rules, one per file and called as the file is: `gm_round_trip.py` has gm-round-trip. Nothing else lies here.

A rule runs, is documented and can be selected because its file lies in this folder: there is no list of them.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from npuscope.check.findings import SEVERITIES
from npuscope.check.rule import Rule


@cache
def all_rules() -> tuple[Rule, ...]:
    """The worst first, then by name."""
    found: list[Rule] = [import_module(f"{__name__}.{module.name}").RULE for module in iter_modules(__path__)]
    return tuple(sorted(found, key=lambda rule: (SEVERITIES.index(rule.severity), rule.id)))
