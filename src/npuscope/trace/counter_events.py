"""Counter events of Chrome-style JSON: every number among an event's arguments is a sample of a series of its own."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from npuscope.trace.json_stream import Event

ROUNDED = "counter value beyond 53 bits rounded"
NO_NUMBER = "counter series without a number"
NO_SERIES = "counter event without a series"
IDENTIFIERS = ("acc_id",)  # arguments of msprof's that tell which accelerator a number is of


@dataclass
class Samples:
    """The samples of some events, column by column, and the account of what is none."""

    event: list[int] = field(default_factory=list)  # which of the events
    name: list[str] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    rounded: int = 0


def samples_of(events: Sequence[Event]) -> Samples:
    """Every series of every event is a sample, or dropped with a reason."""
    found = Samples()
    for number, (event, series) in enumerate(zip(events, _arguments(events), strict=True)):
        which = "".join(f"[{series.pop(key)}]" for key in IDENTIFIERS if key in series)
        if not series:
            found.dropped[NO_SERIES] += 1
        for key, told in series.items():
            value = _number(told)
            if value is None:
                found.dropped[NO_NUMBER] += 1
                continue
            found.rounded += isinstance(told, int) and int(value) != told
            found.event.append(number)
            found.name.append(_name(event.name + which, key))
            found.value.append(value)
    return found


def _name(event: str, series: str) -> str:
    """The event's name and the series', unless the series only repeats it or is called `value`."""
    return event if series == "value" or event.startswith(series) else f"{event} {series}".strip()


def _arguments(events: Sequence[Event]) -> list[dict[str, object]]:
    """The arguments of all events at once, one by one where one of them is no object of numbers and text."""
    texts = [bytes(event.args) or b"{}" for event in events]
    try:
        return msgspec.json.decode(b"[" + b",".join(texts) + b"]", type=list[dict[str, object]])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return [_object(text) for text in texts]


def _object(text: bytes) -> dict[str, object]:
    try:
        return msgspec.json.decode(text.decode(errors="replace"), type=dict[str, object])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _number(told: object) -> float | None:
    """A number, or text that is one, as some tools write them; None for anything else."""
    if isinstance(told, bool) or not isinstance(told, int | float | str):
        return None
    try:
        value = float(told)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None
