"""From when to when every storage is needed, on one line through all instructions.

An instruction at place p reads at 2p and writes at 2p + 1, so that a result may take the place of an operand that is
read for the last time. It may not where the op still reads while it writes: then the operand, or the result, is held
for the whole instruction. A value from before a loop that is read inside is needed to the loop's end; one that is
carried is needed through all of it.

Turns in flight lie side by side: all load first, then one after the other computes and stores. `moment` tells where a
place of a certain turn comes in that order. A loop whose turns differ is several Repeats; they count as one here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from npuscope.lower.flight import crosses, in_flight
from npuscope.lower.model import CoreKind, Instruction, Items, Lowered, Repeat, Value
from npuscope.ops.dtypes import BY_NAME

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
    def own(self) -> int:
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
    found: dict[int, Lifetime] = field(default_factory=dict)  # storages that are written or read
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
            early = spec.storage == "apart" or (spec.storage == "apart_if_wider" and self._widens(one))
            life = self._needed(one.result, read if early else write, loops)
            life.loaded = life.loaded or one.plane == "load"

    def _widens(self, one: Instruction) -> bool:
        values = self.lowered.values
        assert one.result is not None
        return bool(one.reads) and _bytes(values[one.result]) > _bytes(values[one.reads[0]])

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


def _bytes(value: Value) -> int:
    """Of one element."""
    return BY_NAME[value.dtype].bytes


def _loads_first(loop: Repeat) -> int:
    """How many items at the head of a turn only bring tiles: all turns in flight do these first."""
    planes = {"pipeline": ("load",), "l0": ("move",)}.get(loop.kind, ())
    if loop.kind == "pipeline" and crosses(loop.items):
        return 0
    for n, item in enumerate(loop.items):
        if isinstance(item, Repeat) or item.plane not in planes:
            return n
    return len(loop.items)


def lifetimes(lowered: Lowered) -> Lives:
    lives = Lives(lowered)
    lives.walk(lowered.items, {"AIC": (), "AIV": ()})
    return lives
