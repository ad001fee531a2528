"""How much of a simulated run rests on guessed costs, and on which ops.

Counted is what the instructions of all blocks take on an idle chip, each by the cost it was given. What overlaps
counts in full, so a share is no share of the wall time: it says where to look when a prediction is doubted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from npuscope.ops.table import spec_of
from npuscope.simulate.chip.prepare import Prepared
from npuscope.simulate.core.costs import confidence


@dataclass(frozen=True)
class OpTime:
    """An op's share of the time that instructions take, by the constant that its cost came from."""

    op: str
    place: str  # in the device file
    confidence: str
    share: float


@dataclass(frozen=True)
class Certainty:
    """`ops` are ordered by their share, the largest first."""

    ops: tuple[OpTime, ...]

    @property
    def guessed(self) -> tuple[OpTime, ...]:
        return tuple(one for one in self.ops if one.confidence == "guessed")

    @property
    def guessed_share(self) -> float:
        return sum(one.share for one in self.guessed)

    def __str__(self) -> str:
        if not self.guessed:
            return "costs: no instruction has a guessed cost"
        most = self.guessed[0]
        return (
            f"costs: {self.guessed_share:.1%} of the instructions' time is guessed, "
            f"most of it {most.op} ({most.share:.1%}, {most.place})"
        )


def certainty_of(prepared: Prepared) -> Certainty:
    """How sure the costs of a run's instructions are."""
    classes, device = prepared.classes, prepared.program.device
    spent: dict[tuple[str, str], float] = defaultdict(float)
    blocks = np.bincount(prepared.job.block_class, minlength=len(classes.entries))
    for (stream, _), count in zip(classes.entries, blocks.tolist(), strict=True):
        for key, ns in classes.streams[stream].spent.items():
            spent[key] += ns * count
    total = sum(spent.values()) or 1.0
    ops = [OpTime(op, place, confidence(spec_of(op), place, device), ns / total) for (op, place), ns in spent.items()]
    return Certainty(tuple(sorted(ops, key=lambda one: -one.share)))
