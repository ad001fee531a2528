"""Which rules run: `--select` and `--ignore` name them by id or by `prefix*`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from npuscope.base.errors import NpuscopeError
from npuscope.check.rule import Rule


def chosen(rules: Sequence[Rule], select: Sequence[str] = (), ignore: Sequence[str] = ()) -> tuple[Rule, ...]:
    """The rules to run, in the order given; all of them where nothing is selected."""
    wanted = _matching(rules, select, "--select") if select else {rule.id for rule in rules}
    dropped = _matching(rules, ignore, "--ignore")
    return tuple(rule for rule in rules if rule.id in wanted - dropped)


def _matching(rules: Sequence[Rule], given: Sequence[str], option: str) -> set[str]:
    known = [rule.id for rule in rules]
    found: set[str] = set()
    for name in (part.strip() for text in given for part in text.split(",")):
        matched = {id for id in known if id == name or (name.endswith("*") and id.startswith(name[:-1]))}
        if not matched:
            meant = nearest(name, known)
            asked = f"Did you mean {meant}? " if meant else ""
            raise NpuscopeError(f"{option}: no rule '{name}'", remedy=f"{asked}--list-rules lists them.")
        found |= matched
    return found


def nearest(name: str, known: Iterable[str]) -> str:
    """The id that was probably meant, or nothing."""
    return next(iter(difflib.get_close_matches(name, list(known), 1)), "")
