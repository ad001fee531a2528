"""One core group, instruction by instruction: in-order pipes, operands, slots.

An instruction starts when the scalar unit has issued it, its pipe is free, its operands are ready and its slot has no
reader left. Its result is ready a latency after it has left its pipe. Loads of the turns of a pipelined loop that are
in flight together wait until all slots of the turns before are free: the compiler waits for them once, at the head of
the unrolled turn (`groups`). What is taken from the ring queues by itself and does not hold up other loads.

Instructions are read in program order; every pipe keeps that order, so one pass settles all times. The scalar unit
issues nothing while it waits for an element of GM, and nobody passes a barrier before all pipes are done. The same
function runs compiled and as plain Python.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from npuscope.simulate.compiled import compiled, compiled_with_arrays
from npuscope.simulate.core.stream import (
    BARRIER,
    BEGIN,
    DEEP,
    END,
    FAR,
    FIXED,
    ISSUE,
    LATENCY,
    MOST_NESTED,
    NEAR,
    PIPES,
    PLACE,
    READS,
    RUN,
    Floats,
    Ints,
    Stream,
)

ISSUING, SLOT = len(PIPES), len(PIPES) + 1  # reasons to wait beside the pipe whose result is awaited
REASONS = (*PIPES, "issue", "slot")
CUBE_SCALAR, VECTOR_SCALAR = PLACE["AIC", "S"], PLACE["AIV", "S"]


@dataclass(frozen=True)
class Timing:
    """A block alone on the chip, in nanoseconds; `busy` of each pipe."""

    duration: float
    cube: float  # when the cube core is done
    vector: float
    busy: Floats
    met: Floats  # when the block came to each barrier


@dataclass(frozen=True)
class BlockTrace:
    """What one block did, one row per instruction: pipe, row of the stream, site, start, end, why it waited.

    `slot`: where its result lies, -1 for none. `because`: the instruction whose end let it start, -1 for none; one that
    waited to be issued names the last that the scalar unit waited for.
    """

    pipe: Ints
    row: Ints
    site: Ints
    start: Floats
    end: Floats
    reason: Ints
    slot: Ints
    because: Ints


@compiled
def copy_of(home: int, turns: Ints, turn: Ints, copies: Ints, pushed: Ints) -> int:
    """Which copy of a storage the present turns of its loops use; a tile in the ring goes round with every push."""
    if turns[home, 0] == -2:
        return int((pushed[home] - 1) % copies[home])
    copy = 0
    for n in range(DEEP):
        loop = turns[home, 2 * n]
        if loop < 0:
            break
        copy = copy * turns[home, 2 * n + 1] + turn[loop] % turns[home, 2 * n + 1]
    return copy


def _run(
    code: Ints,
    costs: Floats,
    storage: Ints,
    copies: Ints,
    turns: Ints,
    slots: Ints,
    first_slot: Ints,
    loops: int,
    slow: float,
    share: float,
    groups: int,
    busy: Floats,
    met: Floats,
    trace_ints: Ints,
    trace_floats: Floats,
) -> tuple[float, float, int]:
    """Runs a stream; a `share` of its bytes comes out of HBM, `slow` times slower than where nobody else uses it.

    Fills busy and, as far as it has rows, the trace.
    """
    most = 1
    for n in range(len(copies)):
        most = max(most, copies[n])
    ready = np.zeros((len(storage), most))
    maker = np.full((len(storage), most), -1, np.int64)
    made_by = np.full((len(storage), most), -1, np.int64)  # instructions, as the trace counts them
    released = np.zeros(np.max(slots) + 1 if len(slots) else 1)
    released_by = np.full(len(released), -1, np.int64)
    free = np.zeros(len(busy))  # pipes
    free_by = np.full(len(busy), -1, np.int64)
    done = np.zeros(len(busy))  # their last result is there
    done_by = np.full(len(busy), -1, np.int64)
    taken = np.zeros(2)  # what takes from the ring, on the cube core and on the vector core
    taken_by = np.full(2, -1, np.int64)
    gate = np.zeros(len(storage))  # of each storage: when all slots of the turns before were free
    gate_by = np.full(len(storage), -1, np.int64)
    issued = np.zeros(2)
    issued_by = np.full(2, -1, np.int64)
    turn = np.zeros(loops, np.int64)
    pushed = np.zeros(len(storage), np.int64)
    at = np.zeros(MOST_NESTED, np.int64)  # rows of the loops begun
    left = np.zeros(MOST_NESTED, np.int64)
    depth = 0
    row = 0
    traced = 0
    barriers = 0
    while row < len(code):
        kind = code[row, 0]
        if kind == BEGIN:
            at[depth] = row
            left[depth] = code[row, 3]
            depth += 1
            row += 1
            continue
        if kind == END:
            turn[code[row, 1]] += 1
            left[depth - 1] -= 1
            issued[0] += costs[row, ISSUE]
            issued[1] += costs[row, ISSUE]
            if left[depth - 1] > 0:
                row = at[depth - 1] + 1
            else:
                depth -= 1
                row += 1
            continue
        if kind == BARRIER:
            met[barriers] = np.max(done)
            last = done_by[np.argmax(done)]
            free[:] = met[barriers] + costs[row, FIXED]
            done[:] = free[0]
            issued[:] = free[0]
            free_by[:] = last
            done_by[:] = last
            issued_by[:] = last
            barriers += 1
            row += 1
            continue
        result = code[row, 2]
        pipe = code[row, 1]
        target = 0
        slot = -1
        if result >= 0:
            home = storage[result]
            if turns[home, 0] == -2 and kind == RUN and code[row, 4] != result:
                pushed[home] += 1  # a push: the next slot of the ring
            target = copy_of(home, turns, turn, copies, pushed)
            slot = slots[first_slot[home] + target]
        start = 0.0
        reason = ISSUING
        because = -1
        if kind == RUN:
            unit = 0 if pipe <= CUBE_SCALAR else 1
            issued[unit] += costs[row, ISSUE]
            start = issued[unit]
            because = issued_by[unit]
            before = taken[unit] if code[row, 3] == 1 else free[pipe]
            if before > start:
                start = before
                reason = -1
                because = taken_by[unit] if code[row, 3] == 1 else free_by[pipe]
        for n in range(READS):
            value = code[row, 4 + n]
            if value < 0:
                break
            home = storage[value]
            copy = copy_of(home, turns, turn, copies, pushed)
            if ready[value, copy] > start:
                start = ready[value, copy]
                reason = maker[value, copy]
                because = made_by[value, copy]
        if kind != RUN:  # a view or a carried value: there when its source is
            if result >= 0:
                source = code[row, 4]
                if source >= 0:
                    ready[result, target] = start
                    maker[result, target] = reason if reason != ISSUING else -1
                    made_by[result, target] = because
            row += 1
            continue
        if slot >= 0 and released[slot] > start:
            start = released[slot]
            reason = SLOT
            because = released_by[slot]
        if slot >= 0 and (groups >> pipe) & 1 and copies[storage[result]] > 1 and turns[storage[result], 0] >= 0:
            home = storage[result]
            if target == 0:  # the first of the turns in flight
                gate[home] = 0.0
                for n in range(copies[home]):
                    other = slots[first_slot[home] + n]
                    if released[other] > gate[home]:
                        gate[home] = released[other]
                        gate_by[home] = released_by[other]
            if gate[home] > start:
                start = gate[home]
                reason = SLOT
                because = gate_by[home]
        cost = costs[row, FIXED] + costs[row, NEAR] * (1 - share) + costs[row, FAR] * share * slow
        end = start + cost
        there = end + costs[row, LATENCY]
        if code[row, 3] == 1:
            taken[0 if pipe <= CUBE_SCALAR else 1] = end
            taken_by[0 if pipe <= CUBE_SCALAR else 1] = traced
        else:
            free[pipe] = end
            free_by[pipe] = traced
        if there > done[pipe]:
            done[pipe] = there
            done_by[pipe] = traced
        busy[pipe] += cost
        if pipe in (CUBE_SCALAR, VECTOR_SCALAR):
            issued[0 if pipe == CUBE_SCALAR else 1] = end
            issued_by[0 if pipe == CUBE_SCALAR else 1] = traced
        for n in range(READS):
            value = code[row, 4 + n]
            if value < 0:
                break
            home = storage[value]
            copy = copy_of(home, turns, turn, copies, pushed)
            used = slots[first_slot[home] + copy]
            left_at = there if result < 0 else end  # what is stored may be written over when it has arrived
            if left_at > released[used]:
                released[used] = left_at
                released_by[used] = traced
        if result >= 0:
            ready[result, target] = there
            maker[result, target] = pipe
            made_by[result, target] = traced
            if there > released[slot]:
                released[slot] = there
                released_by[slot] = traced
        if traced < len(trace_ints):
            trace_ints[traced, 0] = pipe
            trace_ints[traced, 1] = row
            trace_ints[traced, 2] = reason
            trace_ints[traced, 3] = slot
            trace_ints[traced, 4] = because
            trace_floats[traced, 0] = start
            trace_floats[traced, 1] = end
        traced += 1
        row += 1
    cube = 0.0
    vector = 0.0
    for n in range(len(done)):
        if n <= CUBE_SCALAR:
            cube = max(cube, done[n])
        else:
            vector = max(vector, done[n])
    return cube, vector, traced


_run_compiled = compiled_with_arrays(_run)


def time_block(stream: Stream, slow: float = 1.0, plain: bool = False, share: float = 1.0) -> Timing:
    """A block of whose bytes a `share` comes out of HBM, at `slow` times the time that takes it alone.

    `plain` runs the twin in Python.
    """
    timing, _ = _timed(stream, slow, share, plain, 0)
    return timing


def trace_block(
    stream: Stream, slow: float = 1.0, most: int = 100_000, share: float = 1.0
) -> tuple[Timing, BlockTrace]:
    """The same, with what every pipe did, up to `most` instructions."""
    return _timed(stream, slow, share, False, most)


def _timed(stream: Stream, slow: float, share: float, plain: bool, most: int) -> tuple[Timing, BlockTrace]:
    busy = np.zeros(len(PIPES))
    met = np.zeros(stream.barriers)
    ints, floats = np.zeros((most, 5), np.int64), np.zeros((most, 2))
    run = _run if plain else _run_compiled
    cube, vector, count = run(
        stream.code,
        stream.costs,
        stream.storage,
        stream.copies,
        stream.turns,
        stream.slots,
        stream.first_slot,
        stream.loops,
        slow,
        share,
        stream.groups,
        busy,
        met,
        ints,
        floats,
    )
    ints, floats = ints[: min(count, most)], floats[: min(count, most)]
    pipe, rows, reason, slot, because = ints.T
    lane = BlockTrace(pipe, rows, stream.sites[rows], floats[:, 0], floats[:, 1], reason, slot, because)
    return Timing(max(cube, vector), cube, vector, busy, met), lane
