"""The runtime's rings in plain Python: what `src/npuscope/time/chip/engine.py` must agree with."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from npuscope.time.chip.job import BYTES, CLOSES, RING, Rings


@dataclass
class Ring:
    slots: int
    heap: int
    taken: deque[int] = field(default_factory=deque)  # entries, the oldest first


class PlainRings:
    def __init__(self, rings: Rings) -> None:
        self.entry = rings.entry.tolist()
        self.first, self.first_use, self.use = (
            rows.tolist() for rows in (rings.first_entry, rings.first_use, rings.use)
        )
        self.rings = [Ring(slots, heap) for slots, heap in rings.room.T.tolist()]
        self.kept = [0] * len(self.entry[RING])
        self.free = [0.0] * len(self.entry[RING])

    def entries(self, task: int) -> range:
        """What submitting a task takes: tensors allocated before it, then the task itself."""
        return range(self.first[task], self.first[task + 1]) if self.first else range(0)

    def uses(self, task: int) -> list[int]:
        """Entries that a task keeps until it is done: its own and what it uses."""
        if not self.first:
            return []
        return [self.entries(task)[-1], *self.use[self.first_use[task] : self.first_use[task + 1]]]

    def have_room(self, task: int) -> bool:
        for number, ring in enumerate(self.rings):
            wanted = [e for e in self.entries(task) if self.entry[RING][e] == number]
            held = [*ring.taken, *wanted]
            if wanted and (len(held) >= ring.slots or sum(self.entry[BYTES][e] for e in held) > ring.heap):
                return False
        return True

    def take(self, task: int) -> None:
        for e in self.entries(task):
            self.rings[self.entry[RING][e]].taken.append(e)
        for e in self.uses(task):
            self.kept[e] += 1

    def drop(self, task: int, clock: float) -> None:
        for e in self.uses(task):
            self.kept[e] -= 1
            self.free[e] = max(self.free[e], clock)

    def release(self, next: int, now: float) -> int:
        """First in, first out: what nobody keeps and whose scope has closed before task `next`; how many."""
        released = 0
        for ring in self.rings:
            while ring.taken:
                oldest = ring.taken[0]
                if self.kept[oldest] or self.free[oldest] > now or self.entry[CLOSES][oldest] > next:
                    break
                ring.taken.popleft()
                released += 1
        return released
