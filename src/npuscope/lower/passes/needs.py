"""Whether a value is still needed at some place of a body: what may be written over and what not."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from npuscope.lower.model import Instruction, Items, Repeat

LoopsAround = tuple[int, ...]  # the loops of several turns around a place, outermost first, by where they begin


@dataclass
class Needs:
    """Reads and makers of every value along the line of instructions; a read of a view is one of what it views."""

    items: Items
    reads: dict[int, list[tuple[int, LoopsAround]]] = field(default_factory=lambda: defaultdict(list))
    made: dict[int, LoopsAround] = field(default_factory=dict)  # value -> the loops around its maker
    place: dict[int, int] = field(default_factory=dict)  # id of an instruction or loop -> its place
    around: dict[int, LoopsAround] = field(default_factory=dict)  # id of an instruction or loop -> the loops around it
    _viewed: dict[int, int] = field(default_factory=dict)
    _next: int = 0

    def __post_init__(self) -> None:
        self._walk(self.items, ())

    def _walk(self, items: Items, around: LoopsAround) -> None:
        for item in items:
            here = self.place[id(item)] = self._next
            self.around[id(item)] = around
            self._next += 1
            if isinstance(item, Repeat):
                inside = (*around, here) if item.count > 1 else around
                for carry in item.carries:
                    self.made[carry.value] = inside
                    if carry.first is not None:
                        self._read(carry.first, here, around)
                self._walk(item.items, inside)
                for carry in item.carries:
                    self._read(carry.next, self._next, inside)
                self._next += 1
            else:
                self._instruction(item, here, around)

    def _instruction(self, one: Instruction, here: int, around: LoopsAround) -> None:
        for number in one.reads:
            self._read(number, here, around)
        if one.result is not None:
            self.made[one.result] = around
            if one.plane == "view" and one.operands and one.operands[0] is not None:
                self._viewed[one.result] = one.operands[0]

    def _read(self, number: int, here: int, around: LoopsAround) -> None:
        self.reads[number].append((here, around))
        while number in self._viewed:
            number = self._viewed[number]
            self.reads[number].append((here, around))

    def after(self, number: int, item: Instruction | Repeat) -> bool:
        """Whether anything reads a value after an item that overwrites it: later on, or in a loop's next turn."""
        here, around = self.place[id(item)], self.around[id(item)]
        while number in self._viewed:
            number = self._viewed[number]
        outer = self.made.get(number, ())
        for place, loops in self.reads[number]:
            if place > here:
                return True
            shared = [loop for loop, other in zip(around, loops, strict=False) if loop == other and loop not in outer]
            if shared:
                return True
        return False
