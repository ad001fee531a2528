"""How long a loop may go on that says itself when it ends. NPUSCOPE_MOST_TURNS raises it."""

from __future__ import annotations

import os

from npuscope.errors import NpuscopeError
from npuscope.tile.fault import fault

VARIABLE = "NPUSCOPE_MOST_TURNS"
MOST_TURNS = 100_000  # no public program has such a loop of more than a few hundred


class Turns:
    """Counts the turns of one `while` loop."""

    def __init__(self) -> None:
        self.count, self.most = 0, most_turns()

    def turn(self) -> int:
        """The number of a turn that begins, from 0."""
        self.count += 1
        if self.count > self.most:
            raise fault(
                f"this loop has gone on for {self.most:,} turns and does not seem to end",
                f"Mend its condition, or let it go on: {VARIABLE}={10 * self.most} npuscope …",
            )
        return self.count - 1


def most_turns() -> int:
    told = os.environ.get(VARIABLE, "")
    if not told:
        return MOST_TURNS
    if not told.isdecimal() or int(told) < 1:
        raise NpuscopeError(f"{VARIABLE} is '{told}': it must be a whole number from 1")
    return int(told)
