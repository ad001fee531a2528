"""Keeps what a tool tells within so many bytes: the longest list is halved until it fits, and what was cut is said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

Told = dict[str, Any]
LEAST = 512  # bytes
SHORT = 160  # characters of a sentence


def within(told: Told, budget: int | None) -> Told:
    """The same with shorter lists; `cut` has the place of each and how many entries are left of how many."""
    if budget is None or _size(told) <= budget:
        return told
    smaller, cut = deepcopy(told), dict[str, str]()
    lengths = {place: len(items) for place, items in _lists(smaller, "")}
    while _size({**smaller, "cut": cut}) > budget:
        found = [(place, items) for place, items in _lists(smaller, "") if len(items) > 1]
        if not found:
            break
        place, items = max(found, key=lambda one: _size(one[1]))
        del items[len(items) // 2 :]
        cut[place] = f"{len(items)} of {lengths.get(place, len(items))}"
    if _size({**smaller, "cut": cut}) > budget:
        smaller, cut = _shorter(smaller), {**cut, "sentences": f"at most {SHORT} characters"}
    return {**smaller, "cut": cut}


def _lists(value: object, place: str) -> Iterator[tuple[str, list[Any]]]:
    if isinstance(value, dict):
        for name, one in value.items():
            yield from _lists(one, f"{place}.{name}" if place else str(name))
    elif isinstance(value, list):
        yield place, value
        for one in value:
            yield from _lists(one, place + "[]")


def _shorter(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= SHORT else f"{value[: SHORT - 1]}…"
    if isinstance(value, dict):
        return {name: _shorter(one) for name, one in value.items()}
    return [_shorter(one) for one in value] if isinstance(value, list) else value


def _size(told: object) -> int:
    return len(json.dumps(told, ensure_ascii=False, default=str).encode())
