"""What one instruction costs on an idle core: how long its pipe is taken, and how long after that its result is there.

Every constant is the device file's. A transfer with GM takes its pipe for a fixed time, for every row that lies apart
and for its bytes, which come faster out of L2 than out of HBM; what it brings is there a latency later, in which the
pipe may already do the next one. `op_price` is what an op costs by itself, on a tile of a given size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import Constant, Device, OpCost, ReduceCost
from npuscope.lower.chip import matrix
from npuscope.lower.model import CoreKind, Instruction, Lowered, Pipe, Value
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.spec import OpRole, OpSpec, Plane
from npuscope.ops.transfers import DEFER_WAIT, NOTIFY, PUT, REMOTE_LOAD, REMOTE_STORE, WAIT
from npuscope.tile.record.model import Access

NS = 1e9
DRAIN = "core.l0_drain"
GRAIN = 32  # bytes, the least that a transfer moves
CORE = {"AIC": "cube", "AIV": "vector", None: "vector"}


@dataclass(frozen=True, slots=True)
class Cost:
    """Nanoseconds: `fixed` and `memory` of its pipe, the latter out of L2 or, `far`, out of HBM that nobody else uses.

    The result is there `latency` later. `lines`: bytes of GM in whole lines, `drawn`: for how many of them a load takes
    HBM. `place`: the constant that rules it. `crowding`: how far L2 gets slower where HBM does.
    """

    fixed: float
    memory: float = 0.0
    lines: int = 0
    place: str = ""
    latency: float = 0.0
    far: float = 0.0
    drawn: float = 0.0
    crowding: float = 0.0


def cost_of(one: Instruction, lowered: Lowered, device: Device, made: frozenset[int] = frozenset()) -> Cost:
    """The cost of one instruction of a lowered body; `made`: arguments that earlier tasks of the run have written."""
    cycle = NS / _clock(device)
    if one.spec in REMOTE:
        found = _remote(one, lowered, device)
        if found is not None:
            return found
    if one.pipe in ("MTE2", "MTE3", "FIXP") and one.accesses:
        return _transfer(one, lowered, device, made)
    if one.spec.is_a(OpRole.SEND, OpRole.RECEIVE):
        return _handed_over(one, lowered, device)
    if one.pipe == "M":
        return Cost(_product(one, lowered, device) * cycle, place=one.spec.cost)
    if one.pipe == "MTE1":
        value = lowered.values[one.result]  # type: ignore[index]
        key = "l0_right" if value.space == "Right" else "l0_left"
        return Cost(_size(value) / device.core[key].value * cycle, place=f"core.{key}")
    if one.pipe == "FIXP":
        value = lowered.values[one.reads[0]]
        return Cost(_drain(*matrix(value.shape), device) * cycle, place=DRAIN)
    if one.pipe == "V":
        return Cost(_vector(one, lowered, device) * cycle, place=cost_place(one, lowered))
    if one.pipe == "S" and any(access.mode == "read" for access in one.accesses):  # nobody waits for a write
        # where its line is not in the data cache
        return Cost(device.timing["scalar_read"].value * NS, place="timing.scalar_read")
    return Cost(0.0)


REMOTE, SIGNALS = (PUT, REMOTE_LOAD, REMOTE_STORE), (NOTIFY, WAIT, DEFER_WAIT)


def link_constant(device: Device, name: str) -> float:
    """A constant of the links between ranks, in nanoseconds or bytes per nanosecond."""
    if name not in device.timing:
        raise NpuscopeError(
            f"the file of {device.name} has no timing.{name}, so nothing is known of its links",
            remedy="Let the file inherit from ascend910b1.",
        )
    constant = device.timing[name]
    return constant.value / NS if constant.unit.endswith("/s") else constant.value * NS


def links_of(device: Device) -> tuple[tuple[int, float], ...]:
    """How many ranks each kind of link reaches, fewest first, and its bytes per nanosecond from a rank."""
    return tuple(sorted((int(one.ranks.value), one.bandwidth.value / NS) for one in device.link))


def link_rate(links: Sequence[tuple[int, float]], ranks: int) -> float:
    """Bytes per nanosecond that a rank sends to all others in equal parts: the slowest kind of link decides."""
    slowest, inside = 0.0, 1
    for reach, rate in links:
        through = max(min(ranks, reach) - inside, 0)  # ranks that only this kind reaches
        slowest, inside = max(slowest, through / rate), inside + through
    return (ranks - 1) / slowest if slowest else float("inf")


def moved_far(one: Instruction, lowered: Lowered) -> int:
    """Bytes that an instruction moves from or to another rank."""
    if one.attribute("peer") is None or one.spec not in REMOTE:
        return 0
    return _size(lowered.values[one.reads[0] if one.plane == "store" else one.result])  # type: ignore[index]


def _remote(one: Instruction, lowered: Lowered, device: Device) -> Cost | None:
    """A transfer from or to another rank; None where a load or store of this rank's own memory is an ordinary one.

    A put goes through a tile on chip, in pieces of it, one after the other: both ways are in what its store takes.
    """
    far = one.attribute("peer") is not None
    if one.spec is PUT and one.plane == "load":
        near = _transfer(one, lowered, device)
        return Cost(0.0, lines=near.lines, drawn=near.drawn)
    if not far and one.spec is not PUT:
        return None
    value = lowered.values[one.reads[0] if one.plane == "store" else one.result]  # type: ignore[index]
    moved, steps = _size(value), 1.0
    if isinstance(staged := one.attribute("staged"), tuple):
        rows, columns, depth = staged
        steps = prod(value.shape) / (rows * columns) / depth
    if one.spec is REMOTE_LOAD:
        place = "remote_load"
    elif one.spec is PUT:
        place = "put_remote" if far else "put_local"
    else:
        place = "remote_store"
    rate = link_constant(device, "put_rate" if one.plane == "store" else "remote_load_rate")
    lines = sum(line_bytes(access, BY_NAME[value.dtype].width, 1) for access in one.accesses)
    return Cost(steps * link_constant(device, place) + moved / rate, lines=lines, place=f"timing.{place}")


def signal_cost(one: Instruction, device: Device) -> Cost:
    """What telling another rank takes, and looking whether another has told."""
    place = "signal_wait" if one.spec is not NOTIFY else "notify_set" if one.attribute("op") == "set" else "notify_add"
    if one.attribute("window") is None:
        return Cost(0.0)
    return Cost(link_constant(device, place), place=f"timing.{place}")


def _clock(device: Device) -> float:
    assert device.clock is not None
    return device.clock.core.value


def _size(value: Value) -> int:
    return BY_NAME[value.dtype].size(prod(value.shape))


def spans_of(access: Access) -> tuple[int, list[tuple[int, int]]]:
    """Elements of a box that lie side by side in GM, and the extents and strides along which such spans repeat."""
    span, outer = 1, list(zip(access.shape, access.strides, strict=True))
    while outer and (outer[-1][1] == span or outer[-1][0] == 1):
        span *= outer.pop()[0]
    return span, outer


def line_bytes(access: Access, size: float, line: int) -> int:
    """Bytes of whole lines that a box of GM touches: contiguous spans, each rounded up to lines."""
    span, outer = spans_of(access)
    spans = prod(extent for extent, _ in outer)
    gap = min((stride for extent, stride in outer if extent > 1), default=0) * size
    if spans > 1 and gap < line:  # neighbours share lines
        return int(-(-(spans * max(gap, 1)) // line) * line)
    return int(spans * -(-span * size // line) * line)


def _rows_and_bytes(one: Instruction, lowered: Lowered, size: float) -> tuple[float, float]:
    """Rows that lie apart in GM and the bytes that one core moves, in steps of GRAIN; of a split body each its half."""
    rows = moved = 0.0
    for access in one.accesses:
        span, outer = spans_of(access)
        spans = prod(extent for extent, _ in outer)
        rows += spans
        moved += spans * -(-span * size // GRAIN) * GRAIN
    halves = _halves(one, lowered)
    return rows / halves, moved / halves


def _halves(one: Instruction, lowered: Lowered) -> int:
    """Over how many vector cores the instruction's tile is split."""
    return 2 if lowered.split and one.unit == "AIV" else 1


def _transfer(one: Instruction, lowered: Lowered, device: Device, made: frozenset[int] = frozenset()) -> Cost:
    """Between GM and the core."""
    timing = device.timing
    number = one.result if one.result is not None else one.reads[0] if one.reads else None
    size = 4 if number is None else BY_NAME[lowered.values[number].dtype].width
    lines = sum(line_bytes(access, size, int(device.core["gm_line"].value)) for access in one.accesses)
    crowding = timing["l2_crowding"].value
    if one.pipe == "FIXP":
        drain = _drain(*matrix(lowered.values[one.reads[0]].shape), device) * NS / _clock(device)
        return Cost(0.0, drain, lines, DRAIN, timing["store_latency"].value * NS, drain, crowding=crowding)
    rows, moved = _rows_and_bytes(one, lowered, size)
    if one.pipe == "MTE3":
        memory = (moved / timing["store_rate"].value + rows * timing["store_row"].value) * NS
        fixed, latency = timing["store_fixed"].value * NS, timing["store_latency"].value * NS
        return Cost(fixed, memory, lines, "timing.store_rate", latency, memory, crowding=crowding)
    clash = _short_clashing(one, lowered, size, device, made) if one.unit == "AIC" else 0.0
    near, far = (_load_ns(rows, moved, clash, CORE[one.unit], source, device) for source in ("l2", "hbm"))
    fixed, latency = timing["load_fixed"].value * NS, timing["load_latency"].value * NS
    drawn = sum(_drawn(access, size, device) for access in one.accesses)
    return Cost(fixed, near, lines, f"timing.load_{CORE[one.unit]}_l2", latency, far, drawn, crowding)


def _load_ns(rows: float, moved: float, clash: float, core: str, source: str, device: Device) -> float:
    """A load's bytes, or its rows where those take longer: one row is one request, however short it is."""
    timing = device.timing
    in_bytes = moved / timing[f"load_{core}_{source}"].value
    in_rows = rows * timing[f"load_{core}_row_{source}"].value + clash
    return max(in_bytes, in_rows) * NS


def _clashes(access: Access, size: float, device: Device, stride: str = "clash_stride") -> bool:
    """Whether its rows lie a multiple of a stride apart: all in one part of the memory, while others are idle."""
    apart = device.timing[stride].value
    return any(extent > 1 and step * size % apart == 0 for extent, step in spans_of(access)[1])


def _drawn(access: Access, size: float, device: Device) -> float:
    """Bytes of whole lines for which HBM is taken: more than are read where rows clash that fill their lines."""
    line = int(device.core["gm_line"].value)
    clashing = spans_of(access)[0] * size >= line and _clashes(access, size, device)
    return line_bytes(access, size, line) * (device.timing["clash_whole"].value if clashing else 1.0)


def _short_clashing(one: Instruction, lowered: Lowered, size: float, device: Device, made: frozenset[int]) -> float:
    """Seconds that rows shorter than a line clash; one below `clash_row` bytes holds up the next for its share only.

    What the run has made is read by all cores at once, each row by all of them out of the same part of L2.
    """
    line, whole = device.core["gm_line"].value, device.timing["clash_row"].value
    seconds = 0.0
    for access in one.accesses:
        span, outer = spans_of(access)
        kind = "shared" if access.argument in made else "clash"
        if span * size < line and _clashes(access, size, device, f"{kind}_stride"):
            each = device.timing[f"load_{kind}"].value * min(1.0, span * size / whole)
            seconds += prod(extent for extent, _ in outer) * each
    return seconds / _halves(one, lowered)


def _handed_over(one: Instruction, lowered: Lowered, device: Device) -> Cost:
    """A tile through the ring: on chip, or written to GM and read back, where it is still in L2.

    Who takes it can begin a sync after it was given; neither pipe is taken meanwhile.
    """
    timing = device.timing
    gives = one.spec.is_a(OpRole.SEND)
    value = lowered.values[one.reads[0] if gives else one.result]  # type: ignore[index]
    sync = timing[hand_over(one)].value * NS if gives else 0.0
    if one.pipe == "FIXP":
        return Cost(_drain(*matrix(value.shape), device) * NS / _clock(device), place=DRAIN, latency=sync)
    halves = _halves(one, lowered)
    rows, moved = matrix(value.shape)[0] / halves, _size(value) / halves
    if gives:
        taken = timing["store_fixed"].value + moved / timing["store_rate"].value
        return Cost(taken * NS, place=one.spec.cost, latency=sync)
    taken = timing["load_fixed"].value * NS + _load_ns(rows, moved, 0.0, CORE[one.unit], "l2", device)
    return Cost(taken, place=one.spec.cost, latency=timing["load_latency"].value * NS)


def hand_over(one: Instruction) -> str:
    """The constant of how long it takes until who is given a tile can begin."""
    return "hand_over_to_cube" if one.unit == "AIV" else "hand_over_to_vector"


def _product(one: Instruction, lowered: Lowered, device: Device) -> float:
    left, result = lowered.values[one.operands[1]], lowered.values[one.result]  # type: ignore[index]
    m, n = matrix(result.shape)
    rows, columns = matrix(left.shape)
    deep = rows if one.attribute("a_trans") and left.space != "Left" else columns
    size = BY_NAME[left.dtype].width
    fractal = device.core["fractal"].value
    per = device.core["l0_cycles_fp32" if size == 4 else "l0_cycles"].value
    steps = -(-m // fractal) * -(-deep * size // device.core["fractal_k"].value) * -(-n // fractal)
    return device.core["l0_head"].value + per * steps


def _drain(rows: int, columns: int, device: Device) -> float:
    """Cycles in which an accumulator of fp32 or int32 leaves Acc."""
    blocks = -(-columns * 4 // 32)
    odd = blocks // (blocks & -blocks) if blocks else 1
    row = max(device.core["l0_drain_row"].value, 4 * columns / device.core["l0_drain"].value)
    return device.core["l0_drain_fixed"].value + rows * (row + device.core["l0_drain_odd"].value * (odd - 1))


def _vector(one: Instruction, lowered: Lowered, device: Device) -> float:
    number = one.reads[0] if one.reads else one.result
    value = lowered.values[number if number is not None else 0]
    result = value if one.result is None else lowered.values[one.result]
    halves = 2 if lowered.split else 1
    cost = vector_cost(cost_place(one, lowered), device)
    if isinstance(cost, ReduceCost):
        rows, columns = matrix(value.shape)
        return _reduced(cost, max(rows // halves, 1), columns)
    size = max(_size(value), _size(result)) / halves
    if one.spec.is_a(OpRole.WRITES_INTO) and len(one.operands) > 1 and one.operands[1] is not None:
        size = _size(lowered.values[one.operands[1]]) / halves  # the rest of the tile stays where it is
    rows = max(matrix(result.shape)[0] // halves, 1)
    repeats = -(-size // device.core["vec_repeat"].value)
    elements = min((prod(lowered.values[number].shape) for number in one.reads), default=prod(result.shape)) / halves
    return cost.head + cost.slope * repeats + cost.tail + cost.row * rows + cost.element * elements


def cost_place(one: Instruction, lowered: Lowered) -> str:
    """Where the device file has the cost of an instruction of the vector unit."""
    if one.spec.widening and one.reads and one.result is not None:
        source, result = (BY_NAME[lowered.values[number].dtype].bytes for number in (one.reads[0], one.result))
        return one.spec.widening if result > source else one.spec.cost
    if one.spec.alone and len(one.operands) == 1:
        return one.spec.alone
    number = len(one.operands) > 1 and any(operand is None for operand in one.operands)
    return one.spec.with_number if number and one.spec.with_number else one.spec.cost


def confidence(spec: OpSpec | None, place: str, device: Device) -> str:
    """How sure a cost is: a guess where it is another op's, else as sure as its place in the device file."""
    return "guessed" if spec and spec.like and place == spec.cost else at_place(place, device).confidence


def at_place(place: str, device: Device) -> Constant | OpCost | ReduceCost:
    """What the device file has at a place."""
    table, _, key = place.partition(".")
    return (
        device.timing[key] if table == "timing" else device.core[key] if table == "core" else vector_cost(place, device)
    )


def vector_cost(place: str, device: Device) -> OpCost | ReduceCost:
    """The cost at a place of the device file: `op.vadd`, `reduce.row_sum`."""
    table, _, key = place.partition(".")
    costs: Mapping[str, OpCost | ReduceCost] = device.reduce if table == "reduce" else device.op
    if key not in costs:
        raise NpuscopeError(
            f"{device.name} has no cost {place}",
            remedy="Add it to the device file, or let the file inherit from ascend910b1.",
        )
    return costs[key]


def _reduced(cost: ReduceCost, rows: int, columns: int) -> float:
    """Between two widths that were measured the slope and bias between theirs; a wider row grows evenly from there."""
    width = min(columns, cost.columns[-1])
    slope, bias = (float(np.interp(width, cost.columns, values)) for values in (cost.slope, cost.bias))
    by_row = np.array(cost.slope[-2:]) * cost.columns[-2:]
    more = float(np.diff(by_row)[0] / np.diff(cost.columns[-2:])[0]) * (columns - width)
    return (slope * width + more) * rows + bias


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
class OpPrice:
    """`cycles` of the core's clock; `place` in the device file, "" where it takes no time; how sure, and why."""

    cycles: float
    place: str
    confidence: str
    source: str


def op_price(spec: OpSpec, device: Device, shape: tuple[int, int] = SHAPE, dtype: str = DTYPE) -> OpPrice | None:
    """The cost of an op by itself, on tiles of one shape; None for what takes no time, such as a view."""
    if not spec.cost:
        return None
    result = ((shape[0], 1) if spec.axis == "rows" else (1, shape[1])) if spec.is_a(OpRole.REDUCTION) else shape
    spaces = ("Left", "Right", "Acc") if spec.plane == "cube" else ("Vec", "Vec", "Vec")
    tiles = enumerate(zip((shape, shape, result), spaces, strict=True))
    values = tuple(Value(n, "", extents, dtype, 0, n, space) for n, (extents, space) in tiles)
    unit, pipe = _PIPE[spec.plane]
    if spec.is_a(OpRole.SEND, OpRole.RECEIVE):
        pipe = "MTE3" if spec.is_a(OpRole.SEND) else "MTE2"
    accesses: tuple[Access, ...] = ()  # the box of GM that it touches, side by side in memory
    if spec.plane in ("load", "store"):
        accesses = (Access(0, "read" if spec.plane == "load" else "write", shape, (shape[1], 1)),)
    elif spec.cost == "timing.scalar_read":
        accesses = (Access(0, "read", (1, 1), (1, 1)),)
    operands = (None, 0, 1) if spec.plane == "cube" else (0, 1)
    far = (("peer", 1), ("window", 0)) if spec in (*REMOTE, *SIGNALS) else ()
    one = Instruction(spec.name, spec.plane, 0, operands, 2, (), accesses, attributes=far, unit=unit, pipe=pipe)
    cost = signal_cost(one, device) if spec in SIGNALS else cost_of(one, Lowered("", 0, values, (one,)), device)
    cycles, place = (cost.fixed + cost.memory) / NS * _clock(device), cost.place
    if not place:  # no instruction of its own: what the scalar unit takes
        cycles, place = device.timing[spec.cost.removeprefix("timing.")].value, spec.cost
    like = f"as {place}: {spec.like}" if spec.like and place == spec.cost else ""
    return OpPrice(cycles, place, confidence(spec, place, device), like or at_place(place, device).source)
