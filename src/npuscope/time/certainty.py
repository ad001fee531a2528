"""How much of a simulated time rests on measured, documented, fitted and guessed constants, and the guess that matters.

Every moment of the run has one limit (`bound.py`), and the constants behind that limit share its time: HBM's rate; the
costs of the scheduler by how often each was paid; those of the orchestrator; and while blocks run, the costs of their
instructions, each in full although pipes overlap. The guesses with the largest shares are then made half as large and
half as large again, and the chip is run with them: what moves the wall most matters most. An instruction's cost moves
a block by its share of the block's instructions, because to time all blocks again would double the work.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np

from npuscope.chip.devices import Device
from npuscope.ops.table import spec_of
from npuscope.table.formats import rough_percent
from npuscope.time.chip.job import COMPLETED, DISPATCHED, POLLED, Floats, Job
from npuscope.time.chip.prepare import COSTS, HOSTED, Prepared, submit_costs
from npuscope.time.core.costs import NS, confidence
from npuscope.time.run import Simulated

CONFIDENCES = ("measured", "documented", "fitted", "guessed")
TRIED = 5  # guesses that are tried
MOST_BLOCKS = 20_000  # of a run that is run again
MECHANISMS = {
    "scalar_step": "issuing an instruction",
    "scalar_turn": "a turn of a loop of scalars",
    "scalar_access": "a scalar access",
    "barrier": "a barrier",
    "block_start": "entering a block",
    "hand_over_to_vector": "hand-over to the vector cores",
    "hand_over_to_cube": "hand-over to the cube core",
    "hbm_rate": "HBM shared by blocks",
    "submit_base": "submitting a task",
    "submit_argument": "an argument of a task",
    "submit_edge": "an edge of a task, submitted",
    "fill_rate": "fills by the orchestrator",
    "scan_task": "looking at a task at boot",
    "settle_task": "settling a finished task",
    "expand_node": "expanding a node of a recorded graph",
    "poll_core": "polling a core",
    "dispatch_block": "handing out a block",
    "dispatch_turn": "a turn that hands out blocks",
    "complete_block": "completing a block",
    "complete_turn": "a turn that completes blocks",
    "resolve_edge": "an edge, resolved",
    "release_entry": "giving room back",
    "fin_visible": "until an end is seen",
    "pickup": "until a block is picked up",
}


@dataclass(frozen=True)
class Part:
    """A constant's share of the predicted time: of an op's cost, or of a mechanism, which has no `op`."""

    what: str
    op: str
    place: str  # in the device file
    confidence: str
    share: float


@dataclass(frozen=True)
class Guess:
    """The guess that matters most; `half` and `more` are the wall with 50% less and more of it, over the wall."""

    part: Part
    half: float | None = None
    more: float | None = None

    @property
    def moves(self) -> float:
        """The share of the wall that half of it more or less moves; 0 where that was not tried."""
        return max(abs(wall - 1) for wall in (self.half or 1.0, self.more or 1.0))

    def __str__(self) -> str:
        name = f"{self.part.what} ({self.part.place})"
        if self.half is None or self.more is None:
            return f"the largest guess is what {name} costs: {rough_percent(self.part.share)} of the time"
        moved = f"half as much or half as much again moves the wall by up to {rough_percent(self.moves)}"
        return f"what {name} costs is a guess: {moved}"


@dataclass(frozen=True)
class Certainty:
    """`parts` are ordered by their share of the predicted time, the largest first; shares add up to one."""

    parts: tuple[Part, ...]
    guess: Guess | None

    @property
    def shares(self) -> dict[str, float]:
        """Of the predicted time, by how sure the constants are that it rests on."""
        return {name: sum(one.share for one in self.parts if one.confidence == name) for name in CONFIDENCES}

    def __str__(self) -> str:
        listed = ", ".join(f"{rough_percent(share)} {name}" for name, share in self.shares.items() if share >= 0.0005)
        return f"the time rests on constants of the chip's file: {listed or 'none'}"

    def as_dict(self) -> dict[str, object]:
        """Part of the JSON contract of `npuscope simulate`."""
        guess = None if self.guess is None else asdict(self.guess)
        return {"shares": self.shares, "guess": guess, "parts": [asdict(one) for one in self.parts]}


def certainty_of(simulated: Simulated) -> Certainty:
    """How sure the constants are that a run rests on."""
    device = simulated.prepared.program.device
    shares: dict[tuple[str, str], float] = defaultdict(float)
    for share, spent in _bills(simulated):
        total = sum(spent.values())
        for key, ns in spent.items():
            shares[key] += share * ns / total if total else 0.0
    whole = sum(shares.values()) or 1.0
    parts = [_part(op, place, device, float(share / whole)) for (op, place), share in shares.items() if share]
    ordered = tuple(sorted(parts, key=lambda one: -one.share))
    return Certainty(ordered, _guess(simulated, [one for one in ordered if one.confidence == "guessed"]))


def _part(op: str, place: str, device: Device, share: float) -> Part:
    what = op or MECHANISMS.get(place.partition(".")[2], place)
    return Part(what, op, place, confidence(spec_of(op) if op else None, place, device), share)


Spent = dict[tuple[str, str], float]  # op ("" for a mechanism) and place -> nanoseconds


def _bills(simulated: Simulated) -> Iterator[tuple[float, Spent]]:
    """Shares of the wall, each with what was spent in it."""
    limits = simulated.bound.shares
    yield limits["memory"], {("", "timing.hbm_rate"): 1.0}
    yield limits["scheduler"], {("", f"timing.{name}"): ns for name, ns in _of_scheduler(simulated).items()}
    submits = _submits(simulated.prepared)
    yield limits["orchestrator"], {("", f"timing.{name}"): float(np.sum(ns)) for name, ns in submits.items()}
    yield sum(limits[name] for name in ("cube", "vector", "dependency", "tail")), _of_blocks(simulated.prepared)


def _of_blocks(prepared: Prepared) -> Spent:
    spent: Spent = defaultdict(float)
    blocks = np.bincount(prepared.job.block_class // _levels(prepared), minlength=len(prepared.classes.entries))
    for (stream, _), count in zip(prepared.classes.entries, blocks.tolist(), strict=True):
        for key, ns in prepared.classes.streams[stream].spent.items():
            spent[key] += ns * count
    start = prepared.program.device.timing["block_start"].value * NS
    spent["", "timing.block_start"] += start * len(prepared.job.block_class)
    return spent


def _levels(prepared: Prepared) -> int:
    """How many classes of the job are made of each class of blocks: noise makes several of each, side by side."""
    return len(prepared.job.run) // max(len(prepared.classes.entries), 1) or 1


def _of_scheduler(simulated: Simulated) -> dict[str, float]:
    job, machine, loops = simulated.prepared.job, simulated.prepared.machine, simulated.times.loops
    blocks = len(job.block_class)
    hosted = {
        "scan_task": machine.scan * len(job.shape),
        "settle_task": machine.settle * len(job.shape),
        "expand_node": machine.expand * float(np.count_nonzero(job.graph >= 0)),
    }
    return {
        **(hosted if machine.hosted else {}),
        "poll_core": float(np.sum(loops[:, POLLED])),
        "dispatch_block": machine.dispatch * blocks,
        "dispatch_turn": machine.dispatch_turn * np.count_nonzero(loops[:, DISPATCHED]),
        "complete_block": machine.complete * blocks,
        "complete_turn": machine.complete_turn * np.count_nonzero(loops[:, COMPLETED]),
        "resolve_edge": machine.resolve * len(job.out),
        "release_entry": machine.release * job.rings.entry.shape[1],
        "fin_visible": machine.fin * blocks,
        "pickup": machine.pickup * blocks,
    }


def _submits(prepared: Prepared) -> dict[str, Floats]:
    """None where the host submits."""
    return {} if prepared.machine.hosted else submit_costs(prepared.program, prepared.job.producers)


def _guess(simulated: Simulated, guesses: list[Part]) -> Guess | None:
    """Of the largest guesses the one that moves the wall most; the largest where that would take long to find."""
    if not guesses:
        return None
    if len(simulated.prepared.job.block_class) > MOST_BLOCKS or simulated.wall <= 0:
        return Guess(guesses[0])
    tried = []
    for part in guesses[:TRIED]:
        half, more = (_wall_with(simulated, part, factor) / simulated.wall for factor in (0.5, 1.5))
        tried.append(Guess(part, half, more))
    return max(tried, key=lambda one: (abs((one.more or 1) - (one.half or 1)), one.part.share))


def _wall_with(simulated: Simulated, part: Part, factor: float) -> float:
    """The wall where what a constant costs is a multiple of what it is."""
    name = part.place.partition(".")[2]
    prepared = simulated.prepared
    job, machine = prepared.job, prepared.machine
    submits = _submits(prepared)
    costs = {**COSTS, **HOSTED}
    if part.op or name not in {"hbm_rate", *costs, *submits}:
        job = _slower_blocks(prepared, (part.op, part.place), factor)
    elif name == "hbm_rate":
        machine = machine._replace(limit=machine.limit / factor)
    elif name in costs:
        machine = machine._replace(**{costs[name]: getattr(machine, costs[name]) * factor})
    else:
        job = job._replace(submit=job.submit + (factor - 1) * submits[name])
    return simulated.trials.wall(job, machine)


def _slower_blocks(prepared: Prepared, key: tuple[str, str], factor: float) -> Job:
    """Blocks that take longer by the part's share of their instructions, and move as many bytes."""
    job, classes = prepared.job, prepared.classes
    start = prepared.program.device.timing["block_start"].value * NS
    times = np.ones((len(classes.entries), 1))
    for number, (stream, _) in enumerate(classes.entries):
        spent = {**classes.streams[stream].spent, ("", "timing.block_start"): start}
        times[number] += (factor - 1) * spent.get(key, 0.0) / (sum(spent.values()) or 1.0)
    times = np.repeat(times, _levels(prepared), axis=0)
    return job._replace(run=job.run * times, draws=job.draws / times)
