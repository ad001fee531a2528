"""Which storage lies where: first fit into buffers, largest first, space by space.

Storages share a buffer where their lifetimes do not meet; a buffer is as large as the first that it took. Turns of a
pipelined loop that are in flight at once have buffers of their own. A space that is too full gives up depth, one turn
of the loop with the largest tile at a time; loads of turns in flight still meet, for all of them come first. What is
too full even so is packed once more with only the loads of turns kept apart. (pypto docs/en/dev/passes/33-memory_reuse)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from npuscope.chip.devices.chip import Device
from npuscope.lower.memory.lifetimes import Lifetime, Lives, Moment, lifetimes
from npuscope.lower.model import CoreKind, Lowered, Value
from npuscope.lower.sizes import up

SPACES: tuple[tuple[str, CoreKind], ...] = (
    ("Mat", "AIC"),
    ("Left", "AIC"),
    ("Right", "AIC"),
    ("Acc", "AIC"),
    ("Bias", "AIC"),
    ("Vec", "AIV"),
)
ON_TOP = ("Left", "Right", "Acc", "Bias")  # at the cube itself: nothing is kept apart where it does not fit


class Tenant(NamedTuple):
    """A storage in a buffer: the value that it is known by, when it is needed, which turn in flight it serves.

    `turns` has for each pipelined loop around it: the loop, which of its turns in flight, how many there are.
    """

    value: Value
    first: int
    last: int
    turns: tuple[tuple[int, int, int], ...] = ()


class Slot(NamedTuple):
    """A buffer at an address."""

    address: int
    bytes: int
    tenants: tuple[Tenant, ...]


@dataclass(frozen=True, slots=True)
class Shallow:
    """A value that got fewer buffers than its loop has turns in flight."""

    value: Value
    wanted: int
    got: int


@dataclass(frozen=True, slots=True)
class SpacePlan:
    """One memory of one core. `reserved` bytes at its head are the ring's."""

    space: str
    unit: CoreKind
    used: int
    limit: int
    reserved: int
    slots: tuple[Slot, ...]
    shallow: tuple[Shallow, ...] = ()

    @property
    def fits(self) -> bool:
        return self.used <= self.limit


@dataclass(frozen=True)
class MemoryPlan:
    """The memory of one body, space by space."""

    spaces: tuple[SpacePlan, ...]


@dataclass(frozen=True, slots=True)
class _Copy:
    """One storage in one of the turns in flight around it."""

    value: Value
    life: Lifetime
    turns: tuple[int, ...]  # of each of the lifetime's loops
    lanes: dict[int, int]  # loop -> which of those in flight; none for sums, which never lie side by side
    first: Moment
    last: Moment

    def tenant(self) -> Tenant:
        turns = tuple(
            (loop.number, turn, loop.own) for loop, turn in zip(self.life.loops, self.turns, strict=True)
        )  # fmt: skip
        return Tenant(self.value, self.life.first, self.life.last, turns)


Buffers = list[list[_Copy]]  # the first copy of each is the largest
Depths = dict[int, int]  # loop -> turns in flight that have buffers of their own


def plan_memory(lowered: Lowered, device: Device) -> MemoryPlan:
    """Addresses for everything; a space may still be too small, which `SpacePlan.fits` tells."""
    lives = lifetimes(lowered)
    known: dict[int, Value] = {}
    for value in lowered.values:
        if value.storage in lives.found and not value.in_ring:
            best = known.get(value.storage)
            if best is None or value.bytes > best.bytes:
                known[value.storage] = value
    ringed = {value.storage for value in lowered.values if value.in_ring}
    spaces = []
    for space, unit in SPACES:
        reserved = sum(ring.bytes for ring in lowered.rings if ring.space == space)
        values = [value for storage, value in known.items() if value.space == space and storage not in ringed]
        if (values or reserved) and space in device.space:
            copies = [copy for value in values for copy in _copies(value, lives, unit)]
            spaces.append(_space(space, unit, copies, reserved, device))
    return MemoryPlan(tuple(spaces))


def _copies(value: Value, lives: Lives, unit: CoreKind) -> Iterator[_Copy]:
    life = lives.found[value.storage]
    for turns in product(*(range(loop.own) for loop in life.loops)):
        of = {loop.start: turn for loop, turn in zip(life.loops, turns, strict=True)}
        lanes = {loop.number: loop.lane(of[loop.start]) for loop in life.loops}
        first = lives.moment(life.first, unit, of, last=False)
        yield _Copy(value, life, turns, lanes, first, lives.moment(life.last, unit, of, last=True))


def _space(space: str, unit: CoreKind, copies: list[_Copy], reserved: int, device: Device) -> SpacePlan:
    limit = int(device.space[space].size.value)
    step = int(device.core["address"].value)
    copies.sort(key=lambda copy: (-copy.value.bytes, copy.first, copy.value.id, copy.turns))
    largest: dict[int, int] = {}  # loop -> its largest tile
    depths: Depths = {}
    for copy in copies:
        for loop in copy.life.loops if copy.lanes else ():
            largest[loop.number] = max(largest.get(loop.number, 0), copy.value.bytes)
            depths[loop.number] = loop.depth
    depths = {loop: max(min(depth, limit // max(largest[loop], 1)), 1) for loop, depth in depths.items()}
    buffers = _packed(copies, lambda one, other: _side_by_side(one, other, depths))
    while _total(buffers, step) > limit - reserved:
        deep = [loop for loop, depth in depths.items() if depth > 1]
        if not deep:
            buffers = _packed(copies, _never if space in ON_TOP else _loads_side_by_side)
            break
        depths[max(deep, key=lambda loop: (largest[loop], -loop))] -= 1
        buffers = _packed(copies, lambda one, other: _side_by_side(one, other, depths))
    address, placed = reserved, []
    for buffer in buffers:
        size = buffer[0].value.bytes
        placed.append(Slot(address, size, tuple(copy.tenant() for copy in buffer)))
        address += up(size, step)
    return SpacePlan(space, unit, address, limit, reserved, tuple(placed), tuple(_shallow(buffers)))


def _packed(copies: list[_Copy], apart: Callable[[_Copy, _Copy], bool]) -> Buffers:
    """First fit: each copy joins the first buffer in which it meets nobody."""
    buffers: Buffers = []
    for copy in copies:
        for buffer in buffers:
            if not any(_meet(copy, other) or apart(copy, other) for other in buffer):
                buffer.append(copy)
                break
        else:
            buffers.append([copy])
    return buffers


def _meet(one: _Copy, other: _Copy) -> bool:
    return one.first <= other.last and other.first <= one.last


def _side_by_side(one: _Copy, other: _Copy, depths: Depths) -> bool:
    """Whether they serve turns of one loop that have buffers of their own."""
    for loop, lane in one.lanes.items():
        if loop in other.lanes and lane % depths[loop] != other.lanes[loop] % depths[loop]:
            return True
    return False


def _never(one: _Copy, other: _Copy) -> bool:
    return False


def _loads_side_by_side(one: _Copy, other: _Copy) -> bool:
    """The same where only loads are kept apart."""
    if not (one.life.loaded or other.life.loaded):
        return False
    return any(other.lanes.get(loop, lane) != lane for loop, lane in one.lanes.items())


def _shallow(buffers: Buffers) -> Iterator[Shallow]:
    places: dict[int, list[int]] = {}
    values: dict[int, Value] = {}
    for n, buffer in enumerate(buffers):
        for copy in buffer:
            if copy.lanes:
                places.setdefault(copy.value.storage, []).append(n)
                values[copy.value.storage] = copy.value
    for storage, found in places.items():
        if len(set(found)) < len(found):
            yield Shallow(values[storage], len(found), len(set(found)))


def _total(buffers: Buffers, step: int) -> int:
    return sum(up(buffer[0].value.bytes, step) for buffer in buffers)
