"""Room in the rings: a task takes it when it is submitted, and gives it back when nobody uses what it made."""

from __future__ import annotations

from npuscope.time.chip.job import BYTES, CLOSES, FOLLOWER, HEAP, RING, SLOTS, Rings
from npuscope.time.chip.state import HEAD, NEXT, TAKEN, USED_BYTES, USED_SLOTS, State
from npuscope.time.compiled import compiled_part


@compiled_part
def has_room(rings: Rings, s: State, task: int) -> bool:
    """Whether the rings have room for a task and the tensors allocated before it; one slot of a ring stays empty."""
    if len(rings.first_entry) == 0:
        return True
    for ring in range(rings.room.shape[1]):
        slots, bytes = s.ring[USED_SLOTS, ring], s.ring[USED_BYTES, ring]
        for entry in range(rings.first_entry[task], rings.first_entry[task + 1]):
            if rings.entry[RING, entry] == ring:
                slots += 1
                bytes += rings.entry[BYTES, entry]
        taken = slots > s.ring[USED_SLOTS, ring]
        if taken and (slots >= rings.room[SLOTS, ring] or bytes > rings.room[HEAP, ring]):
            return False
    return True


@compiled_part
def take_room(rings: Rings, s: State, task: int) -> None:
    if len(rings.first_entry) == 0:
        return
    for entry in range(rings.first_entry[task], rings.first_entry[task + 1]):
        s.ring[USED_SLOTS, rings.entry[RING, entry]] += 1
        s.ring[USED_BYTES, rings.entry[RING, entry]] += rings.entry[BYTES, entry]
    s.number[TAKEN] = rings.first_entry[task + 1]
    count_users(rings, s, task, 1, 0.0)


@compiled_part
def count_users(rings: Rings, s: State, task: int, by: int, clock: float) -> None:
    """A task keeps its own slot and what it uses from its submission to its end at `clock`."""
    if len(rings.first_entry) == 0:
        return
    own = rings.first_entry[task + 1] - 1
    s.kept[own] += by
    s.free[own] = max(s.free[own], clock)
    for n in range(rings.first_use[task], rings.first_use[task + 1]):
        s.kept[rings.use[n]] += by
        s.free[rings.use[n]] = max(s.free[rings.use[n]], clock)


@compiled_part
def release(rings: Rings, s: State, now: float) -> int:
    """Gives back what nobody keeps any longer; how many entries."""
    released = 0
    for ring in range(rings.room.shape[1]):
        entry = s.ring[HEAD, ring]
        while (
            entry < s.number[TAKEN]
            and s.kept[entry] == 0
            and s.free[entry] <= now
            and rings.entry[CLOSES, entry] <= s.number[NEXT]
        ):
            s.ring[USED_SLOTS, ring] -= 1
            s.ring[USED_BYTES, ring] -= rings.entry[BYTES, entry]
            entry = rings.entry[FOLLOWER, entry]
            released += 1
        s.ring[HEAD, ring] = entry
    return released
