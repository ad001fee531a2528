"""Which cause comes first: the one worth most.

What can be taken away counts with its likely gain. What cannot (kernels that run on full cores) counts with TUNABLE of
its time: kernels get faster, they do not vanish.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from npuscope.explain.diagnosis.known import WORTH_A_WORD
from npuscope.explain.diagnosis.shape import Cause, Gain
from npuscope.table.formats import duration

TUNABLE = 0.25  # of the time of kernels on full cores
LAST = ("outside", "unrecorded")  # that the capture lacks, or that is no part of the run


def ranked(causes: Iterable[Cause], wall: int) -> list[Cause]:
    """Weighty ones first, those not worth a word left out."""
    by_worth = sorted(causes, key=lambda cause: -_worth(cause, wall))
    return [cause for number, cause in enumerate(by_worth) if number == 0 or cause.share >= WORTH_A_WORD]


def _worth(cause: Cause, wall: int) -> float:
    if cause.kind in ("core", "bandwidth"):
        return TUNABLE * cause.share * wall
    if cause.gain is None:
        return 0.0 if cause.kind in LAST else cause.share * wall
    return cause.gain.ns


def less(cause: Cause, ns: int, wall: int, where: str) -> Cause:
    """A cause without time that counts elsewhere."""
    taken = min(ns, round(cause.share * wall))
    left = cause.share * wall - taken
    told = f"{cause.sentence.removesuffix('.')}; {duration(taken)} of it counts {where}."
    gain = cause.gain
    if gain is not None:
        low, likely, high = (min(part, round(left)) for part in (gain.low_ns, gain.ns, gain.high_ns))
        gain = Gain(likely, low, high)
    return replace(cause, sentence=told, share=left / wall if wall else 0.0, gain=gain)
