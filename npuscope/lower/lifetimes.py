"""From when to when every storage is needed, on one line through all instructions.

An instruction at place p reads at 2p and writes at 2p + 1, so that a result may take the place of an operand that is
read for the last time. It may not where the op still reads while it writes: then the operand, or the result, is held
for the whole instruction. A value from before a loop that is read inside is needed to the loop's end; one that is
carried is needed through all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from npuscope.lower.model import Instruction, Items, Lowered, Repeat
from npuscope.tile.dtypes import BY_NAME

REDUCTIONS = ("row_sum", "row_max", "row_min", "row_argmax", "row_prod")
NOT_IN_PLACE = {*REDUCTIONS, "recip", "rsqrt", "mrgsort", "move", "copy", "fmod", "fmods", "transpose", "concat"}
HELD_OPERAND = {"sel": (0,)}  # beside the broadcast vector of row_expand_… and col_expand_…


@dataclass(frozen=True, slots=True)
class Loop:
    """A pipelined loop around a storage: turns in flight."""

    number: int
    depth: int


@dataclass(slots=True)
class Lifetime:
    """`loops` are the pipelined loops that every part of it lies in; `loaded` in one of them straight from GM."""

    first: int
    last: int
    path: tuple[int, ...]  # loops around its first write
    loops: tuple[Loop, ...] = ()
    loaded: bool = False


@dataclass
class _Walk:
    lowered: Lowered
    found: dict[int, Lifetime] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)  # place of a loop's segment -> its last instruction
    place: int = 0
    held: dict[int, int] = field(default_factory=dict)

    def items(self, items: Items, path: tuple[tuple[int, int], ...], loops: tuple[Loop, ...]) -> None:
        for item in items:
            if isinstance(item, Instruction):
                self._instruction(item, path, loops)
                self.place += 1
                continue
            start = self.place
            depth = min(item.stage, item.count) if item.kind in ("pipeline", "l0") else 1
            inside = (*loops, Loop(item.loop, depth)) if depth > 1 else loops
            around = (*path, (id(item), start))
            self.place += 1
            self.items(item.items, around, inside)
            end = self.place
            self.place += 1
            self.ends[id(item)] = end
            for carry in item.carries:
                for number in (carry.value, carry.next, carry.first):
                    if number is not None:
                        self._needed(number, 2 * start, path, loops)
                self._needed(carry.value, 2 * end, path, loops)
            self._outlive(item, start, end)

    def _instruction(self, one: Instruction, path: tuple[tuple[int, int], ...], loops: tuple[Loop, ...]) -> None:
        read, write = 2 * self.place, 2 * self.place + 1
        values = self.lowered.values
        held = HELD_OPERAND.get(one.name, (1,) if "_expand" in one.name else ())
        for n, number in enumerate(one.operands):
            if number is not None:
                self._needed(number, write if n in held else read, path, loops)
        for number in one.scratch:
            self._needed(number, read, path, loops)
            self._needed(number, write, path, loops)
        if one.result is not None:
            widens = (
                one.name == "cast"
                and one.reads
                and BY_NAME[values[one.result].dtype].bytes > BY_NAME[values[one.reads[0]].dtype].bytes
            )
            early = one.name in NOT_IN_PLACE or widens
            loaded = one.plane == "load"
            self._needed(one.result, read if early else write, path, loops, loaded)

    def _needed(
        self,
        number: int,
        when: int,
        path: tuple[tuple[int, int], ...],
        loops: tuple[Loop, ...],
        loaded: bool = False,
    ) -> None:
        storage = self.lowered.values[number].storage
        known = self.found.get(storage)
        if known is None:
            self.found[storage] = Lifetime(when, when, tuple(place for place, _ in path), loops, loaded)
            return
        known.first, known.last = min(known.first, when), max(known.last, when)
        known.loaded = known.loaded or loaded
        common = 0
        while common < min(len(loops), len(known.loops)) and loops[common].number == known.loops[common].number:
            common += 1
        known.loops = known.loops[:common]

    def _outlive(self, item: Repeat, start: int, end: int) -> None:
        """What was there before the loop and is read inside must last for all its turns."""
        for life in self.found.values():
            if life.first < 2 * start < life.last and life.last < 2 * end:
                life.last = 2 * end


def lifetimes(lowered: Lowered) -> dict[int, Lifetime]:
    """Storage -> its lifetime; storages that nothing writes or reads have none."""
    walk = _Walk(lowered)
    walk.items(lowered.items, (), ())
    return walk.found
