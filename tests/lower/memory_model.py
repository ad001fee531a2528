"""A memory that remembers whose bytes it holds: runs a lowered body at the addresses of its plan, turn by turn.

Every read must find what was written for it. Loops run as the chip's do: of a pipelined loop as many turns as are in
flight go together, the loads of all of them first. It knows nothing of how the plan came about, only addresses.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from npuscope.lower.memory_plan import MemoryPlan, Tenant
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, instructions

# From facts (chip.md §7): these still read while they write.
WRITES_EARLY = {
    "recip", "rsqrt", "row_sum", "row_max", "row_min", "mrgsort", "move", "copy", "fmod", "fmods", "transpose",
    "concat",
}  # fmt: skip
MOST_GROUPS = 3  # groups of turns of one loop that are run; a fourth would do the same as the third
Turns = dict[int, int]  # loop -> which turn of the Repeat


@dataclass
class Memory:
    """`held` has per space the byte ranges that were written last, and for whom."""

    lowered: Lowered
    plan: MemoryPlan
    held: dict[str, list[tuple[int, int, object]]] = field(default_factory=dict)
    current: dict[int, set[int]] = field(default_factory=dict)  # storage -> the values that it is now
    reads: int = 0

    def __post_init__(self) -> None:
        self.places: dict[int, list[tuple[str, int, Tenant]]] = {}
        for space in self.plan:
            for slot in space.slots:
                for tenant in slot.tenants:
                    self.places.setdefault(tenant.value.storage, []).append((space.space, slot.address, tenant))

    def run(self) -> None:
        self._items(self.lowered.items, {})

    def _items(self, items: Items, turns: Turns) -> None:
        done: Counter[int] = Counter()  # turns of a loop whose turns differ: it is several Repeats
        for item in items:
            if isinstance(item, Instruction):
                self._instruction(item, turns)
            else:
                total = sum(other.count for other in items if isinstance(other, Repeat) and other.loop == item.loop)
                self._loop(item, turns, done[item.loop], total)
                done[item.loop] += item.count

    def _loop(self, loop: Repeat, turns: Turns, before: int, total: int) -> None:
        both_ways = len({one.attribute("way") for one in instructions(loop.items) if one.name == "push"}) > 1
        together = min(loop.stage, total) if loop.kind in ("pipeline", "l0") and not both_ways else 1
        early = _loads(loop) if together > 1 else 0
        shown = range(before, before + min(loop.count, together * MOST_GROUPS))
        for group in range(shown.start // together, shown.stop // together + 1):
            now = [turn - before for turn in shown if turn // together == group]
            for turn in now:
                self._items(loop.items[:early], {**turns, loop.loop: turn})
            for turn in now:
                self._carried(loop, turn > 0)
                self._items(loop.items[early:], {**turns, loop.loop: turn})

    def _carried(self, loop: Repeat, again: bool) -> None:
        """A turn finds what the one before left, or what was there before the loop, in the same storage."""
        for carry in loop.carries:
            found = carry.next if again else carry.first
            storage = self.lowered.values[carry.value].storage
            if found is not None and found in self.current.get(storage, ()):
                self.current[storage].add(carry.value)

    def _instruction(self, one: Instruction, turns: Turns) -> None:
        values = self.lowered.values
        for number in one.reads:
            self._read(number, turns, one)
        for number in one.scratch:
            self._write(number, turns)
        if one.result is None:
            return
        if one.plane == "view" and one.operands and one.operands[0] is not None:
            self.current.setdefault(values[one.result].storage, set()).add(one.result)
            return
        self._write(one.result, turns)
        if one.plane == "cube" and one.operands[0] is not None:
            # the pieces of one product add up in place; whether the sum may be overwritten is for `legal` to say
            self.current[values[one.result].storage].add(one.operands[0])
        same = values[one.result].storage
        widens = one.name == "cast" and one.reads and _wider(values[one.result].dtype, values[one.reads[0]].dtype)
        late = list(one.scratch)
        if one.name in WRITES_EARLY or widens:
            late += one.reads
        elif "_expand" in one.name and len(one.operands) > 1 and one.operands[1] is not None:
            late.append(one.operands[1])
        for number in late:
            if values[number].storage != same:
                self._read(number, turns, one)

    def _place(self, number: int, turns: Turns) -> tuple[str, int, int] | None:
        """Space and byte range of a value in a turn; None for what lies in the ring."""
        value = self.lowered.values[number]
        if value.in_ring:
            return None
        for space, address, tenant in self.places[value.storage]:
            if all(turns[loop] % depth == turn for loop, turn, depth in tenant.turns):
                assert tenant.value.bytes >= value.bytes
                return space, address, address + tenant.value.bytes
        raise AssertionError(f"{value.name} has no place in turns {turns}")

    def _owner(self, number: int, turns: Turns) -> object:
        storage = self.lowered.values[number].storage
        inside = {loop for _, _, tenant in self.places[storage] for loop, _, _ in tenant.turns}
        return storage, tuple((loop, turns[loop]) for loop in sorted(inside))  # each turn has its own

    def _write(self, number: int, turns: Turns) -> None:
        self.current[self.lowered.values[number].storage] = {number}
        place = self._place(number, turns)
        if place is not None:
            space, start, end = place
            kept = [held for held in self.held.get(space, []) if held[1] <= start or held[0] >= end]
            self.held[space] = [*kept, (start, end, self._owner(number, turns))]

    def _read(self, number: int, turns: Turns, one: Instruction) -> None:
        place = self._place(number, turns)
        if place is not None:
            space, start, end = place
            found = [held for held in self.held.get(space, []) if held[0] < end and held[1] > start]
            wanted = (start, end, self._owner(number, turns))
            assert found == [wanted], (
                f"{one.name} reads {self.lowered.values[number]} in turns {turns}: {space} {start} to {end} "
                f"holds {found}, not {wanted}"
            )
            self.reads += 1
        value = self.lowered.values[number]
        inside = any(tenant.turns for _, _, tenant in self.places.get(value.storage, ()))
        assert inside or value.in_ring or number in self.current[value.storage], f"{value} was overwritten in place"


def _loads(loop: Repeat) -> int:
    """Items at the head of a turn that only bring tiles."""
    plane = "load" if loop.kind == "pipeline" else "move"
    heads = [isinstance(item, Instruction) and item.plane == plane for item in loop.items]
    return heads.index(False) if False in heads else len(heads)


def _wider(one: str, other: str) -> bool:
    bits = {"INT8": 8, "UINT8": 8, "BF16": 16, "FP16": 16, "INT16": 16, "FP32": 32, "INT32": 32, "INT64": 64}
    return bits[one] > bits[other]
