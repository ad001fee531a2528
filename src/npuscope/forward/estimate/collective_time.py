"""The calibrated time of a collective, without the wait for ranks that come late.

Small messages: the overhead of the one measured point (an all-reduce) over what the links need. Messages of the size
of a prefill: the fitted line of all-gather and reduce-scatter; an all-reduce is one after the other. In between, what
joins the two.
"""

from __future__ import annotations

import math
from dataclasses import replace

from npuscope.chip.devices import Constant, Device
from npuscope.chip.kernels import collective_of
from npuscope.forward.estimate.law_time import LawTime
from npuscope.forward.work import Work, limit_ns

PARTS = ("reduce_scatter", "all_gather")  # of an all-reduce of a large message
BETWEEN = "between the measured small all-reduce and the fitted lines"
SMALL = "overhead of the measured small all-reduce plus the links' time"


def collective_time(work: Work, device: Device, kernel_type: str) -> LawTime | None:
    """The time of a collective; None without calibration."""
    kind, ranks, message = collective_of(kernel_type), work.ranks, work.message_bytes
    if kind not in ("all_reduce", "all_gather", "reduce_scatter") or ranks is None or message is None or ranks < 2:
        return None
    share = message if kind == "all_gather" else message / ranks
    lines = [device.family.get(name) for name in (PARTS if kind == "all_reduce" else (kind,))]
    costs = [line for line in lines if line is not None]
    small = _small(work, device, kernel_type, kind)
    if len(costs) < len(lines) or (small is not None and small.source == "MEASURED"):
        return small
    least = max(line["bytes_least"].value for line in costs)
    if share >= least:
        inside = kind != "all_reduce" and share <= costs[0]["bytes_most"].value and ranks == costs[0]["ranks"].value
        how = "fitted line" if kind != "all_reduce" else "reduce-scatter and all-gather, each a fitted line"
        return LawTime(_lines(costs, share, ranks), "INTERPOLATED", inside, how)
    point = device.family.get("all_reduce")
    if small is None or point is None or share <= (shortest := point["bytes"].value / point["ranks"].value):
        return small
    # between the largest of the small messages and the smallest of the large ones: straight on logarithmic scales
    at_point = _small(replace(work, message_bytes=round(message * shortest / share)), device, kernel_type, kind)
    begin, end = (at_point or small).seconds, _lines(costs, least, ranks)
    weight = math.log(share / shortest) / math.log(least / shortest)
    return LawTime(begin * (end / begin) ** weight, "INTERPOLATED", False, BETWEEN)


def _lines(costs: list[dict[str, Constant]], share: float, ranks: int) -> float:
    """Seconds of a fixed cost and what every other rank sends at a rate, summed over the parts of a collective."""
    return sum(line["fixed"].value + (ranks - 1) * share / line["rate"].value for line in costs)


def _small(work: Work, device: Device, kernel_type: str, kind: str) -> LawTime | None:
    point = device.family.get("all_reduce")
    if point is None:
        return None
    there = replace(work, message_bytes=round(point["bytes"].value), ranks=round(point["ranks"].value))
    wire, wire_there = limit_ns(work, device, kernel_type), limit_ns(there, device, "hcom_allReduce_")
    if wire.ns is None or wire_there.ns is None:
        return None
    overhead = point["time"].value - wire_there.ns / 1e9
    same = kind == "all_reduce" and (work.message_bytes, work.ranks) == (there.message_bytes, there.ranks)
    seconds = overhead + wire.ns / 1e9
    if same:
        return LawTime(seconds, "MEASURED", True, "measured point")
    return LawTime(seconds, "INTERPOLATED", False, SMALL)
