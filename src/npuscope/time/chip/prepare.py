"""From a checked program to what the chip runs: its job and its machine."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from npuscope.chip.devices.chip import Device
from npuscope.lower.program import Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import Recording
from npuscope.time.chip.block_classes import BlockClasses, BlockKind
from npuscope.time.chip.job import AIC, AIV, MIX, NONE, SLOW, Floats, Ints, Job, Machine
from npuscope.time.chip.ring_arrays import rings_of
from npuscope.time.core.costs import NS

SHAPE = {"MIX": MIX, "AIC": AIC, "AIV": AIV, "none": NONE}


COSTS = {  # constants of the device file -> fields of the machine, in nanoseconds
    "poll_core": "poll",
    "dispatch_block": "dispatch",
    "dispatch_turn": "dispatch_turn",
    "complete_block": "complete",
    "complete_turn": "complete_turn",
    "resolve_edge": "resolve",
    "visible": "visible",
    "fin_visible": "fin",
    "pickup": "pickup",
    "pickup_first": "pickup_first",
    "switch": "switch",
    "early_stage": "stage",
    "dummy": "dummy",
    "idle_loop": "loop",
    "release_entry": "release",
}


@dataclass(frozen=True)
class Prepared:
    """A program ready to run on the chip as often as one likes."""

    program: Program
    classes: BlockClasses
    job: Job
    machine: Machine

    def kind_of(self, number: int) -> BlockKind:
        """The kind of block that a class of the job is of; with noise a kind has several classes, side by side."""
        entries = self.classes.entries
        return entries[number // (len(self.job.run) // len(entries))]


def prepare(program: Program) -> Prepared:
    tasks = program.recording.tasks
    classes = BlockClasses(program)
    blocks = [classes.of(task) if task.groups else np.zeros(0, np.int64) for task in tasks]
    counts = np.array([len(one) for one in blocks], np.int64)
    run, draws = classes.tables() if classes.entries else (np.ones((1, len(SLOW))), np.zeros((1, len(SLOW))))
    edges = sorted({(edge.src, edge.dst) for edge in program.graph.edges if edge.src >= 0})
    source = np.array([src for src, _ in edges], np.int64)
    target = np.array([dst for _, dst in edges], np.int64)
    producers = np.bincount(target, minlength=len(tasks)).astype(np.int64) if edges else np.zeros(len(tasks), np.int64)
    submit = np.sum(list(submit_costs(program, producers).values()), axis=0)
    job = Job(
        shape=np.array([SHAPE[t.core] if len(b) else NONE for t, b in zip(tasks, blocks, strict=True)], np.int64),
        blocks=counts,
        first_block=np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64),
        block_class=np.concatenate(blocks) if len(blocks) else np.zeros(0, np.int64),
        task_of=np.repeat(np.arange(len(tasks), dtype=np.int64), counts),
        producers=producers,
        first_out=np.searchsorted(source, np.arange(len(tasks) + 1)).astype(np.int64),
        out=target,
        submit=submit,
        early=np.array([int(task.early) for task in tasks], np.int64),
        together=np.array([int(task.sync_start) for task in tasks], np.int64),
        waits_host=_host_waits(program.recording),
        run=run,
        draws=draws,
        rings=rings_of(program, edges),
    )
    return Prepared(program, classes, job, machine_of(program.device))


def retimed(prepared: Prepared, device: Device) -> Prepared:
    """The program with other constants of [timing]. Blocks are timed anew only where a constant of theirs differs."""
    program = prepared.program.with_timing(device)
    job, classes = prepared.job, prepared.classes
    job = job._replace(submit=np.sum(list(submit_costs(program, job.producers).values()), axis=0))
    if classes.entries and _of_blocks(device) != _of_blocks(prepared.program.device):
        classes = classes.retimed(program)
        run, draws = classes.tables()
        job = job._replace(run=run, draws=draws)
    return Prepared(program, classes, job, machine_of(device))


def _of_blocks(device: Device) -> dict[str, float]:
    """Constants that a block's time depends on; the others are the machine's and the orchestrator's."""
    others = {"hbm_rate", "fill_rate", *COSTS}
    return {
        name: constant.value
        for name, constant in device.timing.items()
        if name not in others and not name.startswith("submit_")
    }


def submit_costs(program: Program, producers: Ints) -> dict[str, Floats]:
    """What each constant of the orchestrator takes of every task's submission, in nanoseconds."""
    timing, tasks = program.device.timing, program.recording.tasks
    filled = np.zeros(len(tasks))  # bytes that the orchestrator fills before it goes on to the task
    for buffer in program.recording.buffers:
        if buffer.filled and buffer.before_task < len(tasks):
            filled[buffer.before_task] += prod(buffer.shape) * BY_NAME[buffer.dtype].bytes
    return {
        "submit_base": np.full(len(tasks), timing["submit_base"].value * NS),
        "submit_argument": timing["submit_argument"].value * NS * np.array([len(task.arguments) for task in tasks]),
        "submit_edge": timing["submit_edge"].value * NS * producers,
        "fill_rate": filled / timing["fill_rate"].value * NS,
    }


def machine_of(device: Device) -> Machine:
    """The chip's constants in nanoseconds."""
    ns = {name: constant.value * NS for name, constant in device.timing.items()}
    return Machine(
        clusters=int(device.cores.cube.value),
        threads=int(device.runtime["scheduler_threads"].value),
        limit=device.timing["hbm_rate"].value / NS,
        **{field: ns[name] for name, field in COSTS.items()},
    )


def _host_waits(recording: Recording) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """For each task the last writer of what the orchestration read before it submitted the task."""
    waits = np.full(len(recording.tasks), -1, np.int64)
    for read in recording.host_reads:
        writers = [
            task.id
            for task in recording.tasks[: read.before_task]
            if any(argument.writes and argument.buffer == read.buffer for argument in task.arguments)
        ]
        if writers and read.before_task < len(waits):
            waits[read.before_task] = max(waits[read.before_task], writers[-1])
    return waits
