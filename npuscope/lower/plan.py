"""Which storage lies where: first fit into buffers, largest first, space by space.

Storages share a buffer where their lifetimes do not meet; a buffer is as large as the first that it took. Turns of a
pipelined loop that are in flight at once have buffers of their own. A space that is too full first gives up depth of
what can do with less (everything but loads, which all come at the start of a turn), the largest first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from npuscope.device.chip import Device
from npuscope.lower.lifetimes import Lifetime, lifetimes
from npuscope.lower.model import Lowered, Unit, Value
from npuscope.lower.sizes import up

SPACES: tuple[tuple[str, Unit], ...] = (
    ("Mat", "AIC"),
    ("Left", "AIC"),
    ("Right", "AIC"),
    ("Acc", "AIC"),
    ("Bias", "AIC"),
    ("Vec", "AIV"),
)


@dataclass(frozen=True, slots=True)
class Tenant:
    """A storage in a buffer: the value that it is known by, when it is needed, which turn in flight it serves.

    `turns` has for each pipelined loop around it: the loop, which of its turns, how many have their own buffers.
    """

    value: Value
    first: int
    last: int
    turns: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Slot:
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
    unit: Unit
    used: int
    limit: int
    reserved: int
    slots: tuple[Slot, ...]
    shallow: tuple[Shallow, ...] = ()

    @property
    def fits(self) -> bool:
        return self.used <= self.limit


@dataclass(frozen=True)
class Plan:
    """The memory of one body, space by space; `end` is the last place of its line of instructions."""

    kernel: str
    body: int
    spaces: tuple[SpacePlan, ...]
    end: int


@dataclass(slots=True)
class _Resident:
    value: Value
    life: Lifetime
    depths: dict[int, int]  # loop -> buffers
    wanted: int

    @property
    def bytes(self) -> int:
        return self.value.bytes

    @property
    def copies(self) -> int:
        product = 1
        for depth in self.depths.values():
            product *= depth
        return product


def plan_memory(lowered: Lowered, device: Device) -> Plan:
    """Addresses for everything; a space may still be too small, which `SpacePlan.fits` tells."""
    lives = lifetimes(lowered)
    known: dict[int, Value] = {}
    for value in lowered.values:
        if value.storage in lives and not value.in_ring:
            best = known.get(value.storage)
            if best is None or value.bytes > best.bytes:
                known[value.storage] = value
    ringed = {value.storage for value in lowered.values if value.in_ring}
    spaces = []
    for space, unit in SPACES:
        reserved = sum(ring.bytes for ring in lowered.rings if ring.space == space)
        residents = [
            _resident(value, lives[storage])
            for storage, value in known.items()
            if value.space == space and storage not in ringed
        ]
        if (residents or reserved) and space in device.space:
            spaces.append(_space(space, unit, residents, reserved, device))
    end = max((life.last for life in lives.values()), default=0)
    return Plan(lowered.kernel, lowered.body, tuple(spaces), end)


def _resident(value: Value, life: Lifetime) -> _Resident:
    depths = {loop.number: loop.depth for loop in life.loops}
    wanted = 1
    for depth in depths.values():
        wanted *= depth
    return _Resident(value, life, depths, wanted)


def _space(space: str, unit: Unit, residents: list[_Resident], reserved: int, device: Device) -> SpacePlan:
    limit = int(device.space[space].size.value)
    step = int(device.core["address"].value)
    room = limit - reserved
    slots = _packed(residents, step)
    while _total(slots, step) > room:
        shed = _most_relief(residents)
        if shed is None:
            break
        resident, loop = shed
        resident.depths[loop] -= 1
        slots = _packed(residents, step)
    address, placed = reserved, []
    for size, tenants in slots:
        placed.append(Slot(address, size, tuple(tenants)))
        address += up(size, step)
    shallow = tuple(Shallow(r.value, r.wanted, r.copies) for r in residents if r.copies < r.wanted)
    return SpacePlan(space, unit, address, limit, reserved, tuple(placed), shallow)


def _most_relief(residents: Iterable[_Resident]) -> tuple[_Resident, int] | None:
    """The storage and loop whose depth frees the most when lowered by one; loads keep theirs."""
    best: tuple[int, _Resident, int] | None = None
    for resident in residents:
        for loop, depth in resident.depths.items():
            if depth > 1 and not resident.life.loaded:
                relief = resident.bytes * resident.copies // depth
                if best is None or relief > best[0]:
                    best = (relief, resident, loop)
    return None if best is None else best[1:]


def _packed(residents: list[_Resident], step: int) -> list[tuple[int, list[Tenant]]]:
    """First fit, largest first: each tenant joins the first buffer in which it meets nobody."""
    tenants = [tenant for resident in residents for tenant in _tenants(resident)]
    tenants.sort(key=lambda tenant: (-tenant.value.bytes, tenant.first, tenant.value.id, tenant.turns))
    buffers: list[tuple[int, list[Tenant]]] = []
    for tenant in tenants:
        for _, others in buffers:
            if not any(_meet(tenant, other) for other in others):
                others.append(tenant)
                break
        else:
            buffers.append((tenant.value.bytes, [tenant]))
    return buffers


def _tenants(resident: _Resident) -> list[Tenant]:
    turns: list[tuple[tuple[int, int, int], ...]] = [()]
    for loop, depth in resident.depths.items():
        turns = [(*before, (loop, turn, depth)) for before in turns for turn in range(depth)]
    return [Tenant(resident.value, resident.life.first, resident.life.last, turn) for turn in turns]


def _meet(one: Tenant, other: Tenant) -> bool:
    """Whether two tenants are needed at the same time: by their lifetimes, or in different turns in flight."""
    if one.first <= other.last and other.first <= one.last:
        return True
    theirs = {loop: (turn, depth) for loop, turn, depth in other.turns}
    return any(loop in theirs and theirs[loop] != (turn, depth) for loop, turn, depth in one.turns)


def _total(slots: list[tuple[int, list[Tenant]]], step: int) -> int:
    return sum(up(size, step) for size, _ in slots)
