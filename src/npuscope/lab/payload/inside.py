"""Inside blocks: what every pipe did, who waited for whom, in which slot; a block of each kind.

A page holds the kinds with most time: as many as fit MOST_INSTRUCTIONS, each up to MOST_OF_ONE. It says what it leaves
out. Times are tenths of a nanosecond from the block's beginning, instructions in order of pipe and start.
"""

from __future__ import annotations

import numpy as np

from npuscope.lab.payload.packed import packed, rising, whole_numbers
from npuscope.lower.program import PlannedBody, planned_key
from npuscope.time.core.pipes import ISSUING, SLOT
from npuscope.time.inside import PLACES
from npuscope.time.per_line import TimedKind, kinds_of
from npuscope.time.run import Simulated

MOST_INSTRUCTIONS = 120_000
MOST_OF_ONE = 40_000
TENTHS = 10
REASONS = (*PLACES[:ISSUING], "issue", "slot")  # what an instruction can wait for, by number


def inside(simulated: Simulated, only: int | None = None) -> dict[str, object]:
    """Kinds of blocks by their number in the timeline; `only` one of them, whatever its size."""
    found: list[dict[str, object]] = []
    left_out: list[dict[str, object]] = []
    room = MOST_INSTRUCTIONS
    done: set[int] = set()
    for kind in kinds_of(simulated):
        if kind.body in done or (only is not None and kind.body != only):
            continue  # noise makes several of one kind
        done.add(kind.body)
        count = len(kind.lane.pipe)
        if only is None and (count > MOST_OF_ONE or count > room):
            left_out.append({**_named(kind, planned_body(simulated, kind)), "instructions": count})
            continue
        room -= count
        found.append(_kind(kind, simulated))
    most = {"of_one": MOST_OF_ONE, "of_all": MOST_INSTRUCTIONS}
    return {"bodies": found, "reasons": list(REASONS), "places": list(PLACES), "left_out": left_out, "most": most}


def _kind(kind: TimedKind, simulated: Simulated) -> dict[str, object]:
    lane, chain = kind.lane, kind.chain
    order = np.lexsort((lane.start, lane.pipe))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    deciding = np.zeros(len(order), np.uint8)
    deciding[chain.instruction[chain.instruction >= 0]] = 1
    names, name = np.unique([kind.stream.names[row] for row in lane.row.tolist()] or [""], return_inverse=True)
    because = np.where(lane.because >= 0, place[lane.because] if len(place) else 0, -1)
    start, end = (np.rint(times * TENTHS).astype(np.int64) for times in (lane.start, lane.end))
    planned = planned_body(simulated, kind)
    return {
        **_named(kind, planned),
        "duration_ns": kind.timing.duration,
        "slow": kind.slow,
        "busy_ns": kind.timing.busy.tolist(),
        "barriers_ns": kind.timing.met.tolist(),
        "names": names.tolist(),
        "slots": _slots(planned, kind),
        "pipe": packed(lane.pipe[order], "u8"),
        "start": rising(start[order]),
        "dur": whole_numbers((end - start)[order]),
        "name": whole_numbers(name[order] if len(order) else order),
        "site": whole_numbers(lane.site[order]),
        "reason": packed(np.where(lane.reason < 0, 255, lane.reason)[order], "u8"),
        "because": packed(because[order], "i32"),
        "slot": packed(lane.slot[order], "i32"),
        "deciding": packed(deciding[order], "u8"),
        "waits": _waits(kind),
    }


def _named(kind: TimedKind, planned: PlannedBody) -> dict[str, object]:
    """What a list of kinds says of one."""
    return {"body": kind.body, "kernel": planned.kernel, "blocks": kind.blocks, "mean_ns": kind.mean_ns}


def _waits(kind: TimedKind) -> dict[str, float]:
    """Of the time that decides when the block ends, what each place has; it adds up to the block."""
    time = np.bincount(kind.chain.place, kind.chain.end - kind.chain.start, len(PLACES))
    return {name: float(ns) for name, ns in zip(PLACES, time, strict=True) if ns > 0}


def planned_body(simulated: Simulated, kind: TimedKind) -> PlannedBody:
    """The body that a kind of block runs."""
    program, job = simulated.prepared.program, simulated.prepared.job
    block = int(np.flatnonzero(job.block_class == kind.number)[0])
    task = program.recording.tasks[int(job.task_of[block])]
    number = block - int(job.first_block[task.id])
    group = next(group for group in task.groups if number in group.blocks)
    return program.runs(planned_key(task, group.body))


def _slots(planned: PlannedBody, kind: TimedKind) -> list[str]:
    """What a slot is called: the memory and the address; those of rings and of what lies nowhere come after."""
    found = [f"{space.space} at {slot.address:,}" for space in planned.plan for slot in space.slots]
    more = int(np.max(kind.stream.slots, initial=-1)) + 1 - len(found)
    return [*found, *(f"ring or register {n}" for n in range(more))]


assert REASONS[SLOT] == "slot"
