"""How long a loop may go on that says itself when it ends. NPUSCOPE_MOST_TURNS raises it."""

from __future__ import annotations

import os
from collections.abc import Iterator

from npuscope.base.errors import NpuscopeError
from npuscope.tile.fault import fault

VARIABLE = "NPUSCOPE_MOST_TURNS"
MOST_TURNS = 100_000  # no public program has such a loop of more than a few hundred


def counted() -> Iterator[int]:
    """The turns of one `while` loop, from 0, as many as it may have."""
    most = most_turns()
    yield from range(most)
    raise fault(
        f"this loop has gone on for {most:,} turns and does not seem to end",
        f"Mend its condition, or let it go on: {VARIABLE}={10 * most} npuscope …",
    )


def most_turns() -> int:
    told = os.environ.get(VARIABLE, "")
    if not told:
        return MOST_TURNS
    if not told.isdecimal() or int(told) < 1:
        raise NpuscopeError(f"{VARIABLE} is '{told}': it must be a whole number from 1")
    return int(told)
