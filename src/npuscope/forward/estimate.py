"""How long a kernel call takes on a device: the least it can (`limit_ns`), and by calibration where there is one.

The limit is max(FLOPs / peak rate, bytes / peak memory bandwidth), a collective's by its links. A measured time below
it means that the work was less than the shapes say, or that bytes came from L2: it is shown, not clipped. Sources of a
time, in the words of the metrics M1 to M6:

MEASURED      the one measured point of this kernel at this size
INTERPOLATED  a fit over measured calls of the kernel's family; `extrapolated` where this call is outside their range
ANALYTIC      no calibration: the limit, which no kernel reaches
UNKNOWN       no price at all; no time

Collectives (without the wait for late ranks): small messages have the overhead of the one measured point over what the
links need, those of the size of a prefill the fitted line of all-gather and reduce-scatter; in between, what joins the
two. Products, on cores that each compute tiles of the output:

    time = fixed + max(first + again, cube)

first   the weights come from memory once: at the memory's bandwidth, and no faster than the cores in use can each
        take them in (the cube root of the sum of cubes of the two times: near the larger, above it where they meet)
again   what a core loads beyond its share of the weights (its rows, and weights that several row tiles share) comes
        from L2: (tile rows + tile columns) · K bytes per tile
cube    the multiply-adds of padded tiles at the cube's rate
tiles   go to the cores in waves; after more than one wave the last is uneven, which costs half a tile on average

Of the tile sizes that kernels use the fastest counts. K is loaded in steps of 256. INT8 kernels use columns of 256
only, which leaves cores idle on narrow weights. docs/understand/trust.md says how well this holds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.chip.devices import Constant, Device, Link
from npuscope.chip.kernels import collective_of, law_of
from npuscope.forward.calls import Call, CallTensor
from npuscope.forward.work import CallWork, sizes, work_of

Costs = Mapping[str, Constant]
SAME = 0.01  # sizes this close are the same


@dataclass(frozen=True)
class CallTime:
    """`ns` is None for an unknown kernel, `limit_ns` where the chip's limit is not known."""

    ns: int | None
    source: Source
    limit_ns: int | None
    why: str
    extrapolated: bool = False


def estimate(call: Call, device: Device) -> CallTime:
    """The time of one call."""
    work, limit = _priced(call, device)
    if limit.ns is None:
        return CallTime(None, "UNKNOWN", None, limit.why)
    floor = round(limit.ns)
    try:
        found = _calibrated(call, work, limit.ns / 1e9, device)
    except KeyError as missing:  # a device file of the user's own
        what = f"a [family] table of device {device.name} for {call.type} has no {missing}"
        raise NpuscopeError(what, remedy="Complete it as a3.toml does, or leave the table out.") from missing
    if found is None and work.byte_bound:
        return CallTime(None, "UNKNOWN", None, work.note or "what it computes is not known")
    if found is None:
        return CallTime(floor, "ANALYTIC", floor, f"no calibration: {limit.why}")
    # bytes that stay in L2 can beat the memory's limit, but nothing here says which will
    ns = max(round(found.seconds * 1e9), floor)
    return CallTime(ns, found.source, floor, found.why, not found.inside)


def _calibrated(call: Call, work: CallWork, limit: float, device: Device) -> LawTime | None:
    if work.message_bytes is not None:
        return collective_time(work, device, call.type)
    match law_of(call.type):
        case "products":
            return _gemm(call, work, device)
        case "attention":
            return _attention(call, work, limit, device)
    costs = device.family.get(call.type)
    return None if costs is None else _line(call, work, limit, device, costs)


def _gemm(call: Call, work: CallWork, device: Device) -> LawTime | None:
    costs = device.family.get("gemm")
    a, b = (tensor for tensor in call.inputs[:2] if tensor is not None)
    batch, *mkn = sizes(a, b, next((t for t in call.outputs if t is not None), None))
    peak, cores = device.peak("cube", work.dtype or ""), int(device.cores.cube.value)
    if costs is None or batch > 1 or work.dtype not in ("bf16", "fp16", "int8") or peak is None:
        return None
    int8 = work.dtype == "int8"
    seconds = gemm_seconds(
        tilings(mkn[0], mkn[1], mkn[2], int8, cores),
        GemmCosts.of(costs),
        int8=int8,
        v3=call.type == "MatMulV3",
        bandwidth=device.bandwidth,
        macs_per_second=peak / 2 / cores,
    )
    kind = "int8" if work.dtype == "int8" else "bf16"
    bounds = zip(mkn, ("m", "k", "n"), strict=True)
    inside = all(costs[f"{kind}_{d}_least"].value <= size <= costs[f"{kind}_{d}_most"].value for size, d in bounds)
    return LawTime(float(seconds), "INTERPOLATED", inside, "fit over tiles, memory and L2")


def _line(call: Call, work: CallWork, limit: float, device: Device, costs: Costs) -> LawTime:
    """fixed + spread · share of the vector cores in use + bytes at a rate (at the limit where none was fitted)."""
    size, rows = work.bytes or 0, token_rows(call)
    value = {name: constant.value for name, constant in costs.items()}
    seconds = value.get("fixed", 0.0) + value.get("spread", 0.0) * min(1.0, rows / device.cores.vector.value)
    seconds += size / value["rate"] if "rate" in value else limit
    least, most = value["bytes_least"], value["bytes_most"]
    inside = least * (1 - SAME) <= size <= most * (1 + SAME)
    if inside and least == most:
        return LawTime(seconds, "MEASURED", True, "measured point")
    how = "line through one measured point" if least == most else "fitted line"
    return LawTime(seconds, "INTERPOLATED", inside, how)


def _attention(call: Call, work: CallWork, limit: float, device: Device) -> LawTime | None:
    """fixed + the cache's bytes at a rate, or the arithmetic at its limit, whichever is longer."""
    latent = call.inputs[0] is not None and len(call.inputs[0].shape) == 4
    costs = device.family.get("attention_latent" if latent else "attention")
    if costs is None:
        return None
    one_each = token_rows(call) == max((t.shape[0] for t in call.inputs[5:7] if t is not None), default=0)
    moved = (work.bytes or 0) / costs["rate"].value
    inside = one_each and costs["bytes_least"].value <= (work.bytes or 0) <= costs["bytes_most"].value
    seconds = costs["fixed"].value + max(moved, limit)
    return LawTime(seconds, "INTERPOLATED", inside, "fixed cost and the cache's bytes")


def _priced(call: Call, device: Device) -> tuple[CallWork, TimeLimit]:
    """CallWork and limit; two fused kernels that we call ourselves are priced by their parts."""
    if is_fused(call):
        x, up, down, *_ = (*call.inputs, None, None, None)
        if x and up and down and len(x.shape) == 2 and len(up.shape) == len(down.shape) == 3:
            return _fused_experts(call, up, down, device)
    work = work_of(replace(call, type="MlaProlog") if "prolog" in call.given else call)
    return work, limit_ns(work, device, call.type)


def is_fused(call: Call) -> bool:
    """Whether a kernel is experts with the exchange of their tokens, as `llm` makes it."""
    return call.type == "DispatchFFNCombine" and {"tokens_per_expert", "ranks"} <= set(call.given)


def fused_exchange(call: Call, device: Device) -> TimeLimit:
    """One way of a fused kernel's tokens."""
    x, up, *_ = call.inputs
    assert x is not None
    assert up is not None
    size = _rows(call, up) * x.shape[1] * 2
    return limit_ns(
        CallWork("moe_exchange", message_bytes=size, ranks=round(call.given["ranks"])), device, "all_to_all"
    )


def _rows(call: Call, up: CallTensor) -> int:
    """Of all experts of a rank."""
    return max(1, round(call.given["tokens_per_expert"] * up.shape[0]))


def _fused_experts(call: Call, up: CallTensor, down: CallTensor, device: Device) -> tuple[CallWork, TimeLimit]:
    """Both matmuls of the experts, and the exchange there and back, one after the other."""
    rows, works = _rows(call, up), []
    for weight in (up, down):
        a = CallTensor((rows, weight.shape[1]), weight.dtype)
        out = CallTensor((rows, weight.shape[2]))
        works.append(work_of(Call("GroupedMatmul", (a, weight), (out,), call.given)))
    limits = [limit_ns(work, device) for work in works]
    if call.given["ranks"] > 1:
        limits += [fused_exchange(call, device)] * 2
    times = [limit.ns for limit in limits if limit.ns is not None]
    if len(times) < len(limits):
        return works[0], next(limit for limit in limits if limit.ns is None)
    return works[0], TimeLimit(
        sum(times), limits[0].bound, "experts' weights and rows, and the links, with even routing"
    )


def token_rows(call: Call) -> int:
    """Rows that a kernel spreads over the vector cores: the first dimension of its first tensor."""
    first = next((t for t in (*call.inputs, *call.outputs) if t is not None and t.shape), None)
    return 0 if first is None else first.shape[0]


Source = Literal["MEASURED", "INTERPOLATED", "ANALYTIC", "UNKNOWN"]


class LawTime(NamedTuple):
    """`inside`: the call is within the sizes that the law was fitted to. `why` names the law."""

    seconds: float
    source: Source
    inside: bool
    why: str


PARTS = ("reduce_scatter", "all_gather")  # of an all-reduce of a large message
BETWEEN = "between the measured small all-reduce and the fitted lines"
SMALL = "overhead of the measured small all-reduce plus the links' time"


def collective_time(work: CallWork, device: Device, kernel_type: str) -> LawTime | None:
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


def _small(work: CallWork, device: Device, kernel_type: str, kind: str) -> LawTime | None:
    point = device.family.get("all_reduce")
    if point is None:
        return None
    there = replace(work, message_bytes=round(point["bytes"].value), ranks=round(point["ranks"].value))
    wire, wire_there = limit_ns(work, device, kernel_type), limit_ns(there, device, "hcom_allReduce_")
    if wire.ns is None or wire_there.ns is None:
        return None
    overhead = point["time"].value - wire_there.ns / 1e9
    if kind == "all_reduce" and (work.message_bytes, work.ranks) == (there.message_bytes, there.ranks):
        return LawTime(overhead + wire.ns / 1e9, "MEASURED", True, "measured point")
    return LawTime(overhead + wire.ns / 1e9, "INTERPOLATED", False, SMALL)


Floats = NDArray[np.float64]
Flags = bool | NDArray[np.bool_]
ROW_TILES = (16, 32, 64, 128)
COLUMN_TILES = (32, 64, 96, 128, 160, 192, 224, 256)
INT8_COLUMN_TILES = (256,)
K_STEP = 256
FRACTAL = 16
UNEVEN = 0.5  # tiles
SHARPNESS = 3  # of the meeting of two limits


@dataclass(frozen=True)
class GemmCosts:
    """The fitted constants: seconds, and bytes per second of one core."""

    fixed: float
    fixed_int8: float
    first: float
    again: float
    v3_gain: float  # MatMulV3 loads from L2 that much faster

    @staticmethod
    def of(constants: Mapping[str, Constant]) -> GemmCosts:
        names = ("fixed", "fixed_int8", "first", "again", "v3_gain")
        return GemmCosts(*(constants[name].value for name in names))


@dataclass(frozen=True)
class Tilings:
    """Every tiling of one product (or of several, stacked): an array element each."""

    waves: Floats
    tile_bytes: Floats  # loaded per tile
    share_bytes: Floats  # of the weights per core in use
    weight_bytes: Floats
    tile_macs: Floats


def tilings(m: int, k: int, n: int, int8: bool, cores: int) -> Tilings:
    """The tilings of an M×K by K×N product; always as many, so that products can be stacked."""
    columns = INT8_COLUMN_TILES * len(COLUMN_TILES) if int8 else COLUMN_TILES
    tile_m, tile_n = (grid.ravel() for grid in np.meshgrid(ROW_TILES, columns))
    tile_m, tile_n = np.minimum(tile_m, _up(m, FRACTAL)), np.minimum(tile_n, _up(n, FRACTAL))
    width = 1 if int8 else 2
    tiles = -(-m // tile_m) * -(-n // tile_n)
    loaded_k = _up(k, K_STEP)
    weights = float(k) * n * width
    return Tilings(
        waves=-(-tiles // cores),
        tile_bytes=(np.minimum(tile_m, m) + tile_n) * float(loaded_k) * width,
        share_bytes=weights / np.minimum(tiles, cores),
        weight_bytes=np.full(len(tiles), weights),
        tile_macs=tile_m * tile_n * float(loaded_k),
    )


def gemm_seconds(
    t: Tilings, costs: GemmCosts, *, int8: Flags, v3: Flags, bandwidth: float, macs_per_second: float | Floats
) -> np.float64 | Floats:
    """Seconds of the fastest tiling. `macs_per_second` is of one core. Flags may be arrays, one per stacked product."""
    waves = np.where(t.waves > 1, t.waves + UNEVEN, t.waves)
    meet = (t.weight_bytes / bandwidth) ** SHARPNESS + (t.share_bytes / costs.first) ** SHARPNESS
    first = meet ** (1 / SHARPNESS)
    rate = costs.again * np.where(v3, costs.v3_gain, 1.0)
    again = np.maximum(waves * t.tile_bytes - t.share_bytes, 0) / rate
    cube = waves * t.tile_macs / macs_per_second
    fastest: np.float64 | Floats = np.min(np.maximum(first + again, cube), axis=-1)
    return fastest + np.squeeze(np.where(int8, costs.fixed_int8, costs.fixed))


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


Bound = Literal["cube", "vector", "memory", "link"]


@dataclass(frozen=True)
class TimeLimit:
    """`ns` is None where it is not known; `why` names the rate that decides, or the reason why there is none."""

    ns: float | None
    bound: Bound | None
    why: str


def limit_ns(work: CallWork, device: Device, kernel_type: str = "") -> TimeLimit:
    """The limit of one call. `kernel_type` tells a collective's kind."""
    if work.why_unknown is not None:
        return TimeLimit(None, None, work.why_unknown)
    if work.message_bytes is not None:
        return _collective(work, device, kernel_type)
    found: list[tuple[float, Bound, str]] = []
    if work.flops:
        rate = device.peak(work.unit, work.dtype) if work.unit and work.dtype else None
        if rate is None:
            return TimeLimit(
                None, None, f"{device.name} has no {work.unit} rate for {work.dtype or 'an unknown data type'}"
            )
        if work.one_core:
            rate /= (device.cores.cube if work.unit == "cube" else device.cores.vector).value
        bound: Bound = "cube" if work.unit == "cube" else "vector"
        found.append((work.flops / rate * 1e9, bound, f"{work.dtype} at {rate / 1e12:.1f} TFLOP/s"))
    if work.bytes is not None:
        found.append((work.bytes / device.bandwidth * 1e9, "memory", f"memory at {device.bandwidth / 1e12:.2f} TB/s"))
    if not found:
        return TimeLimit(None, None, "neither FLOPs nor bytes are known")
    return TimeLimit(*max(found))


def _collective(work: CallWork, device: Device, kernel_type: str) -> TimeLimit:
    """The worst cut: the bytes that must enter a rank, a die pair, a server, over the links that lead into it."""
    kind, ranks, message = collective_of(kernel_type), work.ranks or 1, work.message_bytes or 0
    if kind is None:
        return TimeLimit(None, None, "what kind of collective this is does not follow from its name")
    if not device.link:
        return TimeLimit(None, None, f"{device.name} has no links in its file")
    if ranks == 1:
        return TimeLimit(0.0, "link", "one rank has nobody to exchange with")
    tiers = _tiers(device, ranks)
    if tiers is None:
        return TimeLimit(None, None, f"the links of {device.name} do not reach {ranks} ranks")
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
    return TimeLimit(time + latency, "link", f"links {name}")


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
