"""The least time a chip needs for a piece of work: at its peak rates, without any loss.

max(FLOPs / peak rate, bytes / peak memory bandwidth); a collective by its links. A measured time below the limit
means that the work was less than the shapes say, or that bytes came from L2 and not from memory: it is shown, not
clipped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from npuscope.chip.devices import Device, Link
from npuscope.chip.kernels import collective_of
from npuscope.forward.work.amount import Work

Bound = Literal["cube", "vector", "memory", "link"]


@dataclass(frozen=True)
class Limit:
    """`ns` is None where it is not known; `why` names the rate that decides, or the reason why there is none."""

    ns: float | None
    bound: Bound | None
    why: str


def limit_ns(work: Work, device: Device, kernel_type: str = "") -> Limit:
    """The limit of one call. `kernel_type` tells a collective's kind."""
    if work.why_unknown is not None:
        return Limit(None, None, work.why_unknown)
    if work.message_bytes is not None:
        return _collective(work, device, kernel_type)
    found: list[tuple[float, Bound, str]] = []
    if work.flops:
        rate = device.peak(work.unit, work.dtype) if work.unit and work.dtype else None
        if rate is None:
            return Limit(
                None, None, f"{device.name} has no {work.unit} rate for {work.dtype or 'an unknown data type'}"
            )
        bound: Bound = "cube" if work.unit == "cube" else "vector"
        found.append((work.flops / rate * 1e9, bound, f"{work.dtype} at {rate / 1e12:.1f} TFLOP/s"))
    if work.bytes is not None:
        found.append((work.bytes / device.bandwidth * 1e9, "memory", f"memory at {device.bandwidth / 1e12:.2f} TB/s"))
    if not found:
        return Limit(None, None, "neither FLOPs nor bytes are known")
    return Limit(*max(found))


def _collective(work: Work, device: Device, kernel_type: str) -> Limit:
    """The worst cut: the bytes that must enter a rank, a die pair, a server, over the links that lead into it."""
    kind, ranks, message = collective_of(kernel_type), work.ranks or 1, work.message_bytes or 0
    if kind is None:
        return Limit(None, None, "what kind of collective this is does not follow from its name")
    if not device.link:
        return Limit(None, None, f"{device.name} has no links in its file")
    if ranks == 1:
        return Limit(0.0, "link", "one rank has nobody to exchange with")
    tiers = _tiers(device, ranks)
    if tiers is None:
        return Limit(None, None, f"the links of {device.name} do not reach {ranks} ranks")
    cuts = []
    inside = 1
    for tier in tiers:
        # the first cut is around one rank, which may use all its tiers at once; the others around the tier below
        into = sum(_bandwidth(t, ranks) for t in tiers) if inside == 1 else inside * _bandwidth(tier, ranks)
        if inside < ranks:
            cuts.append((_entering(kind, message, ranks, inside) / into * 1e9, tier.name))
        inside = int(tier.ranks.value)
    time, name = max(cuts)
    latency = tiers[-1].latency.value * 1e9
    return Limit(time + latency, "link", f"links {name}")


def _tiers(device: Device, ranks: int) -> list[Link] | None:
    """The tiers that a group of neighbouring ranks spans; None where there are not so many ranks."""
    spanned: list[Link] = []
    for link in device.link:
        spanned.append(link)
        if link.ranks.value >= ranks:
            return spanned
    return None


def _bandwidth(link: Link, ranks: int) -> float:
    if not link.mesh:
        return link.bandwidth.value
    reached = min(ranks, link.ranks.value)
    return link.bandwidth.value * (reached - 1) / (link.ranks.value - 1)


def _entering(kind: str, message: int, ranks: int, inside: int) -> float:
    """Bytes that must enter a group of `inside` ranks, which share what they take in, of `ranks` in all."""
    groups = math.ceil(ranks / inside)
    if kind == "all_gather":
        return (ranks - inside) * message
    if kind == "all_to_all":
        return inside * message * (ranks - inside) / ranks
    if kind == "broadcast":
        return float(message)
    share = message * (groups - 1) / groups  # reduced inside before it leaves
    return 2 * share if kind == "all_reduce" else share
