"""What an op costs by itself: one instruction on a tile of a given size, on an idle core."""

from __future__ import annotations

from dataclasses import dataclass

from npuscope.chip.devices.chip import Device
from npuscope.lower.model import CoreKind, Instruction, Lowered, Pipe, Value
from npuscope.ops.spec import OpSpec, Plane, Role
from npuscope.tile.record.model import Access
from npuscope.time.core.costs import NS, Cost, confidence, cost_of, vector_cost

SHAPE, DTYPE = (128, 128), "FP32"
_PIPE: dict[Plane, tuple[CoreKind, Pipe]] = {
    "cube": ("AIC", "M"),
    "vector": ("AIV", "V"),
    "move": ("AIV", "V"),
    "load": ("AIV", "MTE2"),
    "store": ("AIV", "MTE3"),
    "scalar": ("AIV", "S"),
    "sync": ("AIV", "S"),
}


@dataclass(frozen=True)
class Standing:
    """`cycles` of the core's clock; `place` in the device file, "" where it takes no time; how sure, and why."""

    cycles: float
    place: str
    confidence: str
    source: str


def standing(spec: OpSpec, device: Device, shape: tuple[int, int] = SHAPE, dtype: str = DTYPE) -> Standing | None:
    """The cost of an op on tiles of one shape; None for what takes no time, such as a view."""
    if not spec.cost:
        return None
    assert device.clock is not None
    cost = _cost(spec, device, shape, dtype)
    cycle = NS / device.clock.core.value
    cycles, place = (cost.fixed + cost.memory) / cycle, cost.place
    if not place:  # no instruction of its own: what the scalar unit takes
        cycles, place = device.timing[spec.cost.removeprefix("timing.")].value, spec.cost
    like = f"as {place}: {spec.like}" if spec.like and place == spec.cost else ""
    return Standing(cycles, place, confidence(spec, place, device), like or _source(place, device))


def _cost(spec: OpSpec, device: Device, shape: tuple[int, int], dtype: str) -> Cost:
    result = ((shape[0], 1) if spec.axis == "rows" else (1, shape[1])) if spec.is_a(Role.REDUCTION) else shape
    spaces = ("Left", "Right", "Acc") if spec.plane == "cube" else ("Vec", "Vec", "Vec")
    tiles = enumerate(zip((shape, shape, result), spaces, strict=True))
    values = tuple(Value(n, "", extents, dtype, 0, n, space) for n, (extents, space) in tiles)
    unit, pipe = _PIPE[spec.plane]
    if spec.is_a(Role.SEND, Role.RECEIVE):
        pipe = "MTE3" if spec.is_a(Role.SEND) else "MTE2"
    operands = (None, 0, 1) if spec.plane == "cube" else (0, 1)
    one = Instruction(spec.name, spec.plane, 0, operands, 2, accesses=_accesses(spec, shape), unit=unit, pipe=pipe)
    return cost_of(one, Lowered("", 0, values, (one,)), device)


def _accesses(spec: OpSpec, shape: tuple[int, int]) -> tuple[Access, ...]:
    """The box of GM that it touches, side by side in memory; one element for the scalar unit."""
    if spec.plane in ("load", "store"):
        return (Access(0, "read" if spec.plane == "load" else "write", shape, (shape[1], 1)),)
    if spec.cost == "timing.scalar_read":
        return (Access(0, "read", (1, 1), (1, 1)),)
    return ()


def _source(place: str, device: Device) -> str:
    table, _, key = place.partition(".")
    if table in ("timing", "core"):
        return (device.timing if table == "timing" else device.core)[key].source
    return vector_cost(place, device).source
