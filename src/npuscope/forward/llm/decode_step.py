"""One decode step of a tile program, simulated: what a run of it on the chip would show.

A program that can be asked takes `--batch N` (rows), `--context N` (tokens of every row, the new one included) and,
where its layers are to be counted, `--layers N`; what the user adds comes before these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import Device
from npuscope.explain.work import Rules, area_of
from npuscope.lower.program import Program
from npuscope.tile.graph.outputs import the_one
from npuscope.tile.record.model import Recording
from npuscope.tile.script.run import run_script
from npuscope.time.chip.job import MIX, POLLED
from npuscope.time.diagnosis import first_sentence
from npuscope.time.programs import fitting, refusals
from npuscope.time.run import Simulated, simulate


@dataclass(frozen=True)
class Step:
    """A simulated step at one length of its rows. A record is a block on a core: a mixed block has three."""

    length: int  # tokens of every row, the new one included
    ms: float
    tasks: float
    blocks: float
    records: float
    mean_run_us: float  # over records
    mean_dispatch_to_finish_us: float
    overhead: float  # 1 - run / (dispatch to finish)
    orchestrator_busy: float  # share of the step
    schedulers_busy: float  # share of the step, mean of the threads
    bound: str  # the kind of its first cause
    verdict: str  # its first sentence


def record(file: str, arguments: Sequence[str], asked: dict[str, int]) -> Recording:
    """The one program that a script runs when it is asked for these sizes."""
    argv = [*arguments, *(word for name, value in asked.items() for word in (f"--{name}", str(value)))]
    with refusals(file, argv, "It must make one decode step and take --batch and --context (docs/howto/tpot.md)."):
        recordings = run_script(file, argv, "shapes").recordings
    return recordings[the_one(recordings, None, file)]


def simulated_step(recording: Recording, length: int, device: Device) -> Step:
    return measured(simulate(fitting(Program(recording, device))), length)


def measured(run: Simulated, length: int) -> Step:
    """What of a simulated run counts."""
    job, times, wall = run.prepared.job, run.times, run.wall
    cores = np.where(job.shape[job.task_of] == MIX, 3, 1)
    records = int(np.sum(cores))
    if not records:
        raise NpuscopeError(f"no task of {run.prepared.program.recording.program} does any work")
    ran = float(np.sum(cores * (times.end - times.start)))
    held = float(np.sum(cores * (times.finish - times.dispatch)))
    return Step(
        length=length,
        ms=wall / 1e6,
        tasks=int(np.count_nonzero(job.blocks)),
        blocks=len(job.block_class),
        records=records,
        mean_run_us=ran / records / 1e3,
        mean_dispatch_to_finish_us=held / records / 1e3,
        overhead=1 - ran / held,
        orchestrator_busy=float(np.sum(times.submitted - times.began)) / wall,
        schedulers_busy=float(np.sum(times.loops[:, POLLED:])) / wall / run.prepared.machine.threads,
        bound=run.bound.kind,
        verdict=first_sentence(run),
    )


def groups_by_area(recording: Recording, rules: Rules) -> Counter[str]:
    """Tasks that do work, per area."""
    return Counter(area_of(task.kernel, rules) for task in recording.tasks if task.core != "none")
