"""One core group, instruction by instruction: in-order pipes, operands, slots.

An instruction starts when the scalar unit has issued it, its pipe is free, its operands are ready and its slot has no
reader left. Its result is ready a latency after it has left its pipe. Loads of the turns of a pipelined loop that are
in flight together wait until all slots of the turns before are free: the compiler waits for them once, at the head of
the unrolled turn (`groups`). What is taken from the ring queues by itself and does not hold up other loads.

A load waits until what was stored to its tensor in GM has arrived, a store until what was stored to or loaded from its
tensor has: the compiler puts barriers and flags between them, tensor by tensor, wherever in it they lie.

Instructions are read in program order; every pipe keeps that order, so one pass settles all times. The scalar unit
issues nothing while it waits for an element of GM, and nobody passes a barrier before all pipes are done. The same
function runs compiled and as plain Python.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from npuscope.time.compiled import compiled, compiled_with_arrays
from npuscope.time.core.stream import (
    BARRIER,
    BEGIN,
    CROWDING,
    DEEP,
    END,
    FAR,
    FIXED,
    HOLD,
    ISSUE,
    LATENCY,
    LOADED,
    MOST_NESTED,
    NEAR,
    PIPES,
    PLACE,
    READS,
    RUN,
    STORED,
    Floats,
    InstructionStream,
    Ints,
)

START, DONE, THERE = range(3)  # moments of an instruction: it begins, leaves its pipe, and its result is there
ISSUING, SLOT = len(PIPES), len(PIPES) + 1  # reasons to wait beside the pipe whose result is awaited
REASONS = (*PIPES, "issue", "slot")
CUBE_SCALAR, VECTOR_SCALAR = PLACE["AIC", "S"], PLACE["AIV", "S"]
VECTOR_STORE = PLACE["AIV", "MTE3"]
LOADS = (PLACE["AIC", "MTE2"], PLACE["AIV", "MTE2"])


@dataclass(frozen=True)
class Timing:
    """A block alone on the chip, in nanoseconds; `busy` of each pipe."""

    duration: float
    cube: float  # when the cube core is done
    vector: float
    busy: Floats
    met: Floats  # when the block came to each barrier
    stops: Floats = field(default_factory=lambda: np.zeros(0))  # and to each message to or from another rank


@dataclass(frozen=True)
class BlockTrace:
    """What one block did, one row per instruction: pipe, row of the stream, site, times, why it waited.

    `slot`: where its result lies, -1 for none. `because`: the instruction whose end let it start, -1 for none; one that
    waited to be issued names the last that the scalar unit waited for.
    """

    pipe: Ints
    row: Ints
    site: Ints
    start: Floats
    end: Floats
    arrived: Floats  # when its result is there
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


@compiled
def _until(times: Floats, row: int, others: Floats, other: int) -> bool:
    """Puts off a row of times, a column per way, until a row of others; whether that is so in the first way, of which
    the causes are kept."""
    later = bool(others[other, 0] > times[row, 0])
    for w in range(times.shape[1]):
        times[row, w] = max(times[row, w], others[other, w])
    return later


def _run(
    code: Ints,
    costs: Floats,
    storage: Ints,
    copies: Ints,
    turns: Ints,
    slots: Ints,
    first_slot: Ints,
    loops: int,
    slow: Floats,
    share: Floats,
    groups: int,
    busy: Floats,
    met: Floats,
    cores: Floats,
    trace_ints: Ints,
    trace_floats: Floats,
) -> int:
    """Runs a stream once for all its ways: in each a `share` of its bytes comes out of HBM, `slow` times slower than
    where nobody else uses it. What comes after what is the same in all of them, only the times differ.

    Fills busy, met, when the cube and the vector core are done (a column per way) and, as far as it has rows, the trace
    of the first way. How many instructions there are.
    """
    ways = len(slow)
    pipes = len(busy)
    most = 1
    for n in range(len(copies)):
        most = max(most, copies[n])
    ready = np.zeros((len(storage) * most, ways))  # every copy of every value
    maker = np.full(len(ready), -1, np.int64)
    made_by = np.full(len(ready), -1, np.int64)  # instructions, as the trace counts them
    released = np.zeros((np.max(slots) + 1 if len(slots) else 1, ways))
    released_by = np.full(len(released), -1, np.int64)
    free = np.zeros((pipes + 2, ways))  # pipes, then what takes from the ring on the cube core and on the vector core
    free_by = np.full(pipes + 2, -1, np.int64)
    done = np.zeros((pipes, ways))  # their last result is there
    done_by = np.full(pipes, -1, np.int64)
    gate = np.zeros((len(storage), ways))  # of each storage: when all slots of the turns before were free
    gate_by = np.full(len(storage), -1, np.int64)
    tensors = 1
    for n in range(len(code)):
        tensors = max(tensors, code[n, LOADED] + 1, code[n, STORED] + 1)
    arrived = np.zeros((2 * 2 * tensors, ways))  # all that was loaded from a tensor in GM or stored to it, by each core
    arrived_by = np.full(len(arrived), -1, np.int64)
    issued = np.zeros((2, ways))
    issued_by = np.full(2, -1, np.int64)
    turn = np.zeros(loops, np.int64)
    pushed = np.zeros(len(storage), np.int64)
    at = np.zeros(MOST_NESTED, np.int64)  # rows of the loops begun
    left = np.zeros(MOST_NESTED, np.int64)
    used = np.zeros(READS, np.int64)  # slots of the operands
    now = np.zeros((3, ways))  # of the instruction at hand
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
            for w in range(ways):
                issued[0, w] += costs[row, ISSUE]
                issued[1, w] += costs[row, ISSUE]
            if left[depth - 1] > 0:
                row = at[depth - 1] + 1
            else:
                depth -= 1
                row += 1
            continue
        if kind == BARRIER:
            last = 0
            for n in range(1, pipes):
                if done[n, 0] > done[last, 0]:
                    last = n
            because = done_by[last]
            for w in range(ways):
                for n in range(pipes):
                    met[barriers, w] = max(met[barriers, w], done[n, w])
                for n in range(pipes):
                    free[n, w] = met[barriers, w] + costs[row, FIXED]
                    done[n, w] = free[n, w]
                issued[0, w] = free[0, w]
                issued[1, w] = free[0, w]
            free_by[:pipes] = because
            done_by[:] = because
            issued_by[:] = because
            barriers += 1
            row += 1
            continue
        pipe = code[row, 1]
        if kind == HOLD:
            for n in range(READS):
                value = code[row, 4 + n]
                if value < 0:
                    break
                home = storage[value]
                slot = slots[first_slot[home] + copy_of(home, turns, turn, copies, pushed)]
                if _until(free, pipe, released, slot):
                    free_by[pipe] = released_by[slot]
            row += 1
            continue
        result = code[row, 2]
        unit = 0 if pipe <= CUBE_SCALAR else 1
        queue = pipes + unit if code[row, 3] == 1 else pipe
        target = 0
        slot = -1
        if result >= 0:
            home = storage[result]
            if turns[home, 0] == -2 and kind == RUN and code[row, 4] != result:
                pushed[home] += 1  # a push: the next slot of the ring
            target = copy_of(home, turns, turn, copies, pushed)
            slot = slots[first_slot[home] + target]
        reason = ISSUING
        because = -1
        if kind == RUN:
            for w in range(ways):
                issued[unit, w] += costs[row, ISSUE]
                now[START, w] = issued[unit, w]
            because = issued_by[unit]
            if _until(now, START, free, queue):
                reason = -1
                because = free_by[queue]
        else:
            now[START] = 0.0
        reads = 0
        while reads < READS and code[row, 4 + reads] >= 0:
            value = code[row, 4 + reads]
            home = storage[value]
            copy = copy_of(home, turns, turn, copies, pushed)
            at_copy = value * most + copy
            used[reads] = slots[first_slot[home] + copy]
            if _until(now, START, ready, at_copy):
                reason = maker[at_copy]
                because = made_by[at_copy]
            reads += 1
        if kind != RUN:  # a view or a carried value: there when its source is
            if result >= 0 and reads > 0:
                for w in range(ways):
                    ready[result * most + target, w] = now[START, w]
                maker[result * most + target] = reason if reason != ISSUING else -1
                made_by[result * most + target] = because
            row += 1
            continue
        source = code[row, LOADED]
        sink = code[row, STORED]
        for moved in range(2):  # stores wait for loads and stores, loads for stores
            tensor = sink if moved == 0 or source < 0 else source
            if tensor < 0:
                continue
            if _until(now, START, arrived, (moved * 2 + unit) * tensors + tensor):
                because = arrived_by[(moved * 2 + unit) * tensors + tensor]
                reason = VECTOR_STORE if moved == 1 else LOADS[unit]
        if slot >= 0:
            if _until(now, START, released, slot):
                reason = SLOT
                because = released_by[slot]
            home = storage[result]
            if (groups >> pipe) & 1 and copies[home] > 1 and turns[home, 0] >= 0:
                if target == 0:  # the first of the turns in flight
                    gate[home] = 0.0
                    for n in range(copies[home]):
                        other = slots[first_slot[home] + n]
                        if _until(gate, home, released, other):
                            gate_by[home] = released_by[other]
                if _until(now, START, gate, home):
                    reason = SLOT
                    because = gate_by[home]
        for w in range(ways):
            crowded = 1 + costs[row, CROWDING] * (slow[w] - 1)
            near, far = costs[row, NEAR] * (1 - share[w]) * crowded, costs[row, FAR] * share[w] * slow[w]
            cost = costs[row, FIXED] + near + far
            busy[pipe, w] += cost
            now[DONE, w] = now[START, w] + cost
            now[THERE, w] = now[DONE, w] + costs[row, LATENCY] * crowded
            free[queue, w] = now[DONE, w]
        free_by[queue] = traced
        if _until(done, pipe, now, THERE):
            done_by[pipe] = traced
        for moved in range(2):
            tensor = source if moved == 0 else sink
            if tensor < 0:
                continue
            if _until(arrived, (moved * 2 + unit) * tensors + tensor, now, THERE):
                arrived_by[(moved * 2 + unit) * tensors + tensor] = traced
        if pipe in (CUBE_SCALAR, VECTOR_SCALAR):
            for w in range(ways):
                issued[unit, w] = now[DONE, w]
            issued_by[unit] = traced
        for n in range(reads):  # what is stored may be written over when it has arrived
            if _until(released, used[n], now, THERE if result < 0 else DONE):
                released_by[used[n]] = traced
        if result >= 0:
            if _until(released, slot, now, THERE):
                released_by[slot] = traced
            for w in range(ways):
                ready[result * most + target, w] = now[THERE, w]
            maker[result * most + target] = pipe
            made_by[result * most + target] = traced
        if traced < len(trace_ints):
            trace_ints[traced, 0] = pipe
            trace_ints[traced, 1] = row
            trace_ints[traced, 2] = reason
            trace_ints[traced, 3] = slot
            trace_ints[traced, 4] = because
            for n in range(3):
                trace_floats[traced, n] = now[n, 0]
        traced += 1
        row += 1
    for n in range(pipes):
        unit = 0 if n <= CUBE_SCALAR else 1
        _until(cores, unit, done, n)
    return traced


_run_compiled = compiled_with_arrays(_run)


def time_block(stream: InstructionStream, slow: float = 1.0, plain: bool = False, share: float = 1.0) -> Timing:
    """A block of whose bytes a `share` comes out of HBM, at `slow` times the time that takes it alone.

    `plain` runs the twin in Python.
    """
    (timing,), _ = _timed(stream, np.array([slow]), np.array([share]), plain, 0)
    return timing


def time_ways(stream: InstructionStream, slow: Floats, share: Floats) -> list[Timing]:
    """The same for several slow-downs and shares, pairwise, which takes little longer than for one."""
    return _timed(stream, slow, share, False, 0)[0]


def trace_block(
    stream: InstructionStream, slow: float = 1.0, most: int = 100_000, share: float = 1.0
) -> tuple[Timing, BlockTrace]:
    """The same as `time_block`, with what every pipe did, up to `most` instructions."""
    (timing,), lane = _timed(stream, np.array([slow]), np.array([share]), False, most)
    return timing, lane


def _timed(
    stream: InstructionStream, slow: Floats, share: Floats, plain: bool, most: int
) -> tuple[list[Timing], BlockTrace]:
    busy, met, cores = (
        np.zeros((size, len(slow))) for size in (len(PIPES), max(len(stream.messages), stream.barriers), 2)
    )
    ints, floats = np.zeros((most, 5), np.int64), np.zeros((most, 3))
    run = _run if plain else _run_compiled
    count = run(
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
        cores,
        ints,
        floats,
    )
    ints, floats = ints[: min(count, most)], floats[: min(count, most)]
    pipe, rows, reason, slot, because = ints.T
    start, end, arrived = floats.T
    lane = BlockTrace(pipe, rows, stream.sites[rows], start, end, arrived, reason, slot, because)
    found = zip(cores.T.tolist(), busy.T, met.T, strict=True)
    stops = np.array([one is not None for one in stream.messages], bool)
    if not stops.any():
        return [Timing(max(cube, vector), cube, vector, worked, at) for (cube, vector), worked, at in found], lane
    return [
        Timing(max(cube, vector), cube, vector, worked, at[~stops], at[stops]) for (cube, vector), worked, at in found
    ], lane
