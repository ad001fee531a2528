"""Which storage lies where: first fit into buffers, largest first, space by space.

Lifetimes: an instruction at place p reads at 2p and writes at 2p + 1, so that a result may take the place of an operand
that is read for the last time. It may not where the op still reads while it writes: then the operand, or the result, is
held for the whole instruction. A value from before a loop that is read inside is needed to the loop's end; one that is
carried is needed through all of it. Turns in flight lie side by side: all load first, then one after the other computes
and stores; `moment` says where a place of a certain turn comes in that order.

Storages share a buffer where their lifetimes do not meet; a buffer is as large as the first that it took. Turns of a
pipelined loop that are in flight at once have separate buffers. A space that is too full gives up depth, one turn of
the loop with the largest tile at a time; loads of turns in flight still meet, for all of them come first. What is too
full even so is packed once more with only the loads of turns kept separate. (pypto docs/en/dev/passes/33-memory_reuse)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import product, takewhile
from typing import NamedTuple

from npuscope.chip.devices import Device
from npuscope.lower.chip import up
from npuscope.lower.cores import crosses, in_flight
from npuscope.lower.model import CoreKind, Instruction, Items, Lowered, Repeat, Value
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.shaping import DECLARE

Moment = tuple[int, ...]
Turns = dict[int, int]  # Repeat, by its first place -> which turn in flight


@dataclass(frozen=True, slots=True)
class InFlight:
    """A Repeat with turns in flight, as one kind of core runs it."""

    number: int
    begin: int  # place of the whole loop
    start: int  # place of this Repeat
    depth: int  # turns in flight
    before: int  # turns of the loop before this Repeat
    count: int

    @property
    def at_once(self) -> int:
        """Turns of this Repeat that are in flight."""
        return min(self.depth, self.count)

    def lane(self, turn: int) -> int:
        """Which of those in flight a turn of this Repeat is."""
        return (self.before + turn) % self.depth

    def group(self, turn: int) -> int:
        """Which turns it is in flight with; those of a Repeat of many turns sooner or later with one another."""
        if self.count < self.depth:
            return (self.before + turn) // self.depth
        return -(-self.before // self.depth)


Loops = dict[CoreKind, tuple[InFlight, ...]]


@dataclass(slots=True)
class Lifetime:
    """`loops` are those with turns in flight that every part of it lies in."""

    first: int
    last: int
    loops: tuple[InFlight, ...] = ()
    loaded: bool = False  # straight from GM


@dataclass
class Lives:
    """The lifetimes of a body's storages, and its places in the order in which turns in flight come."""

    lowered: Lowered
    found: dict[int, Lifetime] = field(default_factory=dict)  # of the storages that are written or read
    loops: list[Loops] = field(default_factory=list)  # place -> those around it
    early: list[int] = field(default_factory=list)  # place -> the loop whose turns all do it first, 0 for none
    ends: dict[int, int] = field(default_factory=dict)  # place where a Repeat starts -> where it ends

    def moment(self, half: int, unit: CoreKind, turns: Turns, last: bool) -> Moment:
        """When a place of certain turns is; in loops whose turn is not given, the loop's begin or end."""
        found: Moment = ()
        for loop in self.loops[half // 2][unit]:
            turn = turns.get(loop.start, 0 if loop.count == 1 else None)
            if turn is None:
                return (*found, 2 * self.ends[loop.start] + 1 if last else 2 * loop.begin)
            late = self.early[half // 2] != loop.number
            found = (*found, 2 * loop.begin, loop.group(turn), int(late), loop.lane(turn))
        return (*found, half)

    # --- the walk

    def walk(self, items: Items, loops: Loops, early: tuple[int, int] = (0, 0)) -> None:
        """`early`: a loop, and how many of its first items all turns in flight do before the rest."""
        total: Counter[int] = Counter()
        for item in items:
            if isinstance(item, Repeat):
                total[item.loop] += item.count
        done: Counter[int] = Counter()
        begins: dict[int, int] = {}
        for n, item in enumerate(items):
            place = self._place(loops, early[0] if n < early[1] else 0)
            if isinstance(item, Instruction):
                self._instruction(item, place, loops)
                continue
            begin = begins.setdefault(item.loop, place)
            inside: Loops = {}
            for unit, around in loops.items():
                depth = in_flight(item, total[item.loop], unit)
                one = InFlight(item.loop, begin, place, depth, done[item.loop], item.count)
                inside[unit] = (*around, one) if depth > 1 else around
            done[item.loop] += item.count
            self.walk(item.items, inside, (item.loop, _loads_first(item)))
            end = self.ends[place] = self._place(loops, 0)
            for carry in item.carries:
                if carry.first is None:  # else what it begins with lies in the same storage
                    self._needed(carry.value, 2 * begin, loops)
                self._needed(carry.value, 2 * end, loops)
            if item.count > 1:
                self._outlive(place, end)

    def _place(self, loops: Loops, early: int) -> int:
        self.loops.append(loops)
        self.early.append(early)
        return len(self.loops) - 1

    def _instruction(self, one: Instruction, place: int, loops: Loops) -> None:
        read, write = 2 * place, 2 * place + 1
        spec = one.spec
        for n, number in enumerate(one.operands):
            if number is not None:
                self._needed(number, write if n in spec.held else read, loops)
        for number in one.scratch:
            self._needed(number, read, loops)
            self._needed(number, write, loops)
        if one.result is not None:
            early = spec.storage == "separate" or (spec.storage == "separate_if_wider" and self._widens(one))
            life = self._needed(one.result, read if early else write, loops)
            life.loaded = life.loaded or one.plane == "load"

    def _widens(self, one: Instruction) -> bool:
        kinds = [BY_NAME[self.lowered.values[number].dtype].bytes for number in (one.result, *one.reads[:1])]  # type: ignore[index]
        return kinds[0] > kinds[-1]

    def _needed(self, number: int, when: int, loops: Loops) -> Lifetime:
        value = self.lowered.values[number]
        around = loops["AIV" if value.space == "Vec" else "AIC"]
        known = self.found.get(value.storage)
        if known is None:
            known = self.found[value.storage] = Lifetime(when, when, around)
            return known
        known.first, known.last = min(known.first, when), max(known.last, when)
        common = 0
        while common < min(len(around), len(known.loops)) and around[common] == known.loops[common]:
            common += 1
        known.loops = known.loops[:common]
        return known

    def _outlive(self, start: int, end: int) -> None:
        """What was there before the loop and is read inside must last for all its turns."""
        for life in self.found.values():
            if life.first < 2 * start < life.last and life.last < 2 * end:
                life.last = 2 * end


def _loads_first(loop: Repeat) -> int:
    """How many items at the head of a turn only bring tiles: all turns in flight do these first."""
    planes = {"pipeline": ("load",), "l0": ("move",)}.get(loop.kind, ())
    if loop.kind == "pipeline" and crosses(loop.items):
        return 0
    return len(list(takewhile(lambda item: isinstance(item, Instruction) and item.plane in planes, loop.items)))


def lifetimes(lowered: Lowered) -> Lives:
    lives = Lives(lowered)
    lives.walk(lowered.items, {"AIC": (), "AIV": ()})
    return lives


# --- buffers


SPACES = ("Mat", "Left", "Right", "Acc", "Bias", "Vec")
ON_TOP = ("Left", "Right", "Acc", "Bias")  # at the cube itself: turns share buffers where they do not fit


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


MemoryPlan = tuple[SpacePlan, ...]  # the memory of one body


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
        turns = zip(self.life.loops, self.turns, strict=True)
        lanes = tuple((loop.number, turn, loop.at_once) for loop, turn in turns)
        return Tenant(self.value, self.life.first, self.life.last, lanes)


Buffers = list[list[_Copy]]  # the first copy of each is the largest
Depths = dict[int, int]  # loop -> turns in flight that have buffers of their own


@dataclass(frozen=True, slots=True)
class _Declared:
    """A buffer of the author's (pl.MemRef): its slots, the storages in it, and the loop around each, 0 for none."""

    slots: int
    storages: tuple[tuple[int, int], ...]

    def placed(self, known: dict[int, Value], lives: Lives, address: int, step: int) -> list[Slot]:
        """Its slots side by side, each as large as its largest tile. Tiles of one turn lie in different slots."""
        values = [(known[storage], loop) for storage, loop in self.storages if storage in known]
        size = max((value.bytes for value, _ in values), default=0)
        tenants: list[list[Tenant]] = [[] for _ in range(self.slots)]
        for n, (value, loop) in enumerate(values):
            life = lives.found[value.storage]
            for turn in range(self.slots if loop else 1):
                turns = ((loop, turn, self.slots),) if loop and self.slots > 1 else ()
                tenants[(turn + n) % self.slots].append(Tenant(value, life.first, life.last, turns))
                if not turns:
                    break
        return [Slot(address + k * up(size, step), size, tuple(one)) for k, one in enumerate(tenants)]


def _declared(lowered: Lowered) -> dict[tuple[str, str], _Declared]:
    """The buffers of the author's, by name and space."""
    slots: dict[tuple[str, str], int] = {}
    found: dict[tuple[str, str], dict[int, int]] = {}

    def walk(items: Items, loop: int) -> None:
        for item in items:
            if isinstance(item, Repeat):
                walk(item.items, item.loop)
            elif item.spec is DECLARE and item.result is not None:
                value = lowered.values[item.result]
                key = (str(item.attribute("memref")), value.space)
                slots[key] = int(str(item.attribute("slots")))
                found.setdefault(key, {}).setdefault(value.storage, loop)

    walk(lowered.items, 0)
    return {key: _Declared(slots[key], tuple(storages.items())) for key, storages in found.items()}


def plan_memory(lowered: Lowered, device: Device) -> MemoryPlan:
    """Addresses for everything; a space may still be too small, see `SpacePlan.fits`."""
    lives = lifetimes(lowered)
    step = int(device.core["address"].value)
    buffers = _declared(lowered)
    declared = {storage for one in buffers.values() for storage, _ in one.storages}
    known: dict[int, Value] = {}
    for value in lowered.values:
        if value.storage in lives.found and not value.in_ring:
            best = known.get(value.storage)
            if best is None or value.bytes > best.bytes:
                known[value.storage] = value
    ringed = {value.storage for value in lowered.values if value.in_ring}
    spaces = []
    for space in SPACES:
        reserved = sum(ring.bytes for ring in lowered.rings if ring.space == space)
        values = [value for storage, value in known.items() if value.space == space and storage not in ringed]
        if (values or reserved) and space in device.space:
            unit: CoreKind = "AIV" if space == "Vec" else "AIC"
            address, own = reserved, []
            for (_, where), one in buffers.items():
                if where == space:
                    own += one.placed(known, lives, address, step)
                    address = own[-1].address + up(own[-1].bytes, step)
            copies = [copy for value in values if value.storage not in declared for copy in _copies(value, lives, unit)]
            found = _space(space, unit, copies, address, device)
            spaces.append(replace(found, reserved=reserved, slots=(*own, *found.slots)))
    return tuple(spaces)


def _copies(value: Value, lives: Lives, unit: CoreKind) -> Iterator[_Copy]:
    life = lives.found[value.storage]
    for turns in product(*(range(loop.at_once) for loop in life.loops)):
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
    while sum(up(buffer[0].value.bytes, step) for buffer in buffers) > limit - reserved:
        deep = [loop for loop, depth in depths.items() if depth > 1]
        if not deep:
            only_loads = (lambda one, other: False) if space in ON_TOP else _loads_side_by_side
            buffers = _packed(copies, only_loads)
            break
        depths[max(deep, key=lambda loop: (largest[loop], -loop))] -= 1
        buffers = _packed(copies, lambda one, other: _side_by_side(one, other, depths))
    address, placed = reserved, []
    for buffer in buffers:
        size = buffer[0].value.bytes
        placed.append(Slot(address, size, tuple(copy.tenant() for copy in buffer)))
        address += up(size, step)
    return SpacePlan(space, unit, address, limit, reserved, tuple(placed), tuple(_shallow(buffers)))


def _packed(copies: list[_Copy], separate: Callable[[_Copy, _Copy], bool]) -> Buffers:
    """First fit: each copy joins the first buffer in which it meets nobody."""
    buffers: Buffers = []
    for copy in copies:
        for buffer in buffers:
            if not any(_meet(copy, other) or separate(copy, other) for other in buffer):
                buffer.append(copy)
                break
        else:
            buffers.append([copy])
    return buffers


def _meet(one: _Copy, other: _Copy) -> bool:
    return one.first <= other.last and other.first <= one.last


def _side_by_side(one: _Copy, other: _Copy, depths: Depths) -> bool:
    """Whether they serve turns of one loop that have buffers of their own."""
    return any((other.lanes.get(loop, lane) - lane) % depths[loop] for loop, lane in one.lanes.items())


def _loads_side_by_side(one: _Copy, other: _Copy) -> bool:
    """The same where only loads are."""
    loaded = one.life.loaded or other.life.loaded
    return loaded and any(other.lanes.get(loop, lane) != lane for loop, lane in one.lanes.items())


def _shallow(buffers: Buffers) -> Iterator[Shallow]:
    places: dict[Value, list[int]] = {}
    for n, buffer in enumerate(buffers):
        for copy in buffer:
            if copy.lanes:
                places.setdefault(copy.value, []).append(n)
    for value, found in places.items():
        if len(set(found)) < len(found):
            yield Shallow(value, len(found), len(set(found)))
