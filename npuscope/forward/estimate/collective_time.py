"""The calibrated time of a collective, without the wait for ranks that come late.

Small messages: the overhead of the one measured point (an all-reduce) over what the links need. Messages of the size
of a prefill: the fitted line of all-gather and reduce-scatter; an all-reduce is one after the other.
"""

from __future__ import annotations

from dataclasses import replace

from npuscope.device import Device
from npuscope.forward.estimate.calibrated import Calibrated
from npuscope.forward.work import Work, collective_kind, limit_ns

SMALL = "overhead of the measured small all-reduce plus the links' time"


def collective_time(work: Work, device: Device, kernel_type: str) -> Calibrated | None:
    """The time of a collective; None without calibration."""
    kind, ranks, message = collective_kind(kernel_type), work.ranks, work.message_bytes
    if kind not in ("all_reduce", "all_gather", "reduce_scatter") or ranks is None or message is None or ranks < 2:
        return None
    share = message if kind == "all_gather" else message / ranks
    lines = ("reduce_scatter", "all_gather") if kind == "all_reduce" else (kind,)
    large = [_line(name, share, ranks, device) for name in lines]
    found = [line for line in large if line is not None]
    if len(found) == len(lines):
        inside = kind != "all_reduce" and found[0][1]
        how = "fitted line" if kind != "all_reduce" else "reduce-scatter and all-gather, each a fitted line"
        return Calibrated(sum(seconds for seconds, _ in found), "INTERPOLATED", inside, how)
    return _small(work, device, kernel_type, kind)


def _line(name: str, share: float, ranks: int, device: Device) -> tuple[float, bool] | None:
    """None where there is no line, or the message is smaller than any it was fitted to."""
    costs = device.family.get(name)
    if costs is None or share < costs["bytes_least"].value:
        return None
    seconds = costs["fixed"].value + (ranks - 1) * share / costs["rate"].value
    return seconds, share <= costs["bytes_most"].value and ranks == costs["ranks"].value


def _small(work: Work, device: Device, kernel_type: str, kind: str) -> Calibrated | None:
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
        return Calibrated(seconds, "MEASURED", True, "measured point")
    return Calibrated(seconds, "INTERPOLATED", False, SMALL)
