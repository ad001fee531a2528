"""How long a kernel call will take on a device: by calibration where there is one, else at the chip's limit.

Sources, in the words of the metrics M1 to M6:

MEASURED      the one measured point of this kernel at this size
INTERPOLATED  a fit over measured calls of the kernel's family; `extrapolated` where this call is outside their range
ANALYTIC      no calibration: the limit, which no kernel reaches
UNKNOWN       no price at all; no time
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import Constant, Device
from npuscope.chip.kernels import law_of
from npuscope.forward.calls import Call, Tensor
from npuscope.forward.estimate.collective_time import collective_time
from npuscope.forward.estimate.gemm_time import GemmCosts, gemm_time
from npuscope.forward.estimate.law_time import LawTime, Source
from npuscope.forward.work import Limit, Work, limit_ns, work_of
from npuscope.forward.work.matmul import sizes

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


def _calibrated(call: Call, work: Work, limit: float, device: Device) -> LawTime | None:
    if work.message_bytes is not None:
        return collective_time(work, device, call.type)
    match law_of(call.type):
        case "products":
            return _gemm(call, work, device)
        case "attention":
            return _attention(call, work, limit, device)
    costs = device.family.get(call.type)
    return None if costs is None else _line(call, work, limit, device, costs)


def _gemm(call: Call, work: Work, device: Device) -> LawTime | None:
    costs = device.family.get("gemm")
    batch, *mkn = _product(call)
    if costs is None or batch > 1 or work.dtype not in ("bf16", "fp16", "int8"):
        return None
    seconds = gemm_time(mkn[0], mkn[1], mkn[2], work.dtype or "", call.type == "MatMulV3", device, GemmCosts.of(costs))
    if seconds is None:
        return None
    kind = "int8" if work.dtype == "int8" else "bf16"
    bounds = zip(mkn, ("m", "k", "n"), strict=True)
    inside = all(costs[f"{kind}_{d}_least"].value <= size <= costs[f"{kind}_{d}_most"].value for size, d in bounds)
    return LawTime(seconds, "INTERPOLATED", inside, "fit over tiles, memory and L2")


def _line(call: Call, work: Work, limit: float, device: Device, costs: Costs) -> LawTime:
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


def _attention(call: Call, work: Work, limit: float, device: Device) -> LawTime | None:
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


def _priced(call: Call, device: Device) -> tuple[Work, Limit]:
    """Work and limit; two fused kernels that we call ourselves are priced by their parts."""
    if call.type == "DispatchFFNCombine" and {"tokens_per_expert", "ranks"} <= set(call.given):
        x, up, down, *_ = (*call.inputs, None, None, None)
        if x and up and down and len(x.shape) == 2 and len(up.shape) == len(down.shape) == 3:
            return _fused_experts(call, x, up, down, device)
    work = work_of(replace(call, type="MlaProlog") if "prolog" in call.given else call)
    return work, limit_ns(work, device, call.type)


def _fused_experts(call: Call, x: Tensor, up: Tensor, down: Tensor, device: Device) -> tuple[Work, Limit]:
    """Both matmuls of the experts, and the exchange there and back, one after the other."""
    experts, ranks = up.shape[0], call.given["ranks"]
    rows = max(1, round(call.given["tokens_per_expert"] * experts))
    works = []
    for weight in (up, down):
        a = Tensor((rows, weight.shape[1]), weight.dtype)
        out = Tensor((rows, weight.shape[2]))
        works.append(work_of(Call("GroupedMatmul", (a, weight), (out,), call.given)))
    limits = [limit_ns(work, device) for work in works]
    if ranks > 1:
        message = Work("moe_exchange", message_bytes=rows * x.shape[1] * 2, ranks=round(ranks))
        limits += [limit_ns(message, device, "all_to_all")] * 2
    times = [limit.ns for limit in limits if limit.ns is not None]
    if len(times) < len(limits):
        return works[0], next(limit for limit in limits if limit.ns is None)
    return works[0], Limit(sum(times), limits[0].bound, "experts' weights and rows, and the links, with even routing")


def _product(call: Call) -> tuple[int, int, int, int]:
    a, b = (tensor for tensor in call.inputs[:2] if tensor is not None)
    out = next((t for t in call.outputs if t is not None), None)
    return sizes(a, b, out)


def token_rows(call: Call) -> int:
    """Rows that a kernel spreads over the vector cores: the first dimension of its first tensor."""
    first = next((t for t in (*call.inputs, *call.outputs) if t is not None and t.shape), None)
    return 0 if first is None else first.shape[0]
