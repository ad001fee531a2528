"""A simulated run as a report: how long, why, how sure, and where the time of cores went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from npuscope.check.findings import Finding
from npuscope.explain.busy_idle import busy_of
from npuscope.explain.diagnosis import Diagnosis
from npuscope.explain.explanation import Explanation
from npuscope.explain.work import Work
from npuscope.report import anchor as anchor_report
from npuscope.report.anchor import Anchored
from npuscope.report.captures import BLOCKERS, KERNELS, WORTH_A_LINE, causes, headline
from npuscope.report.check_text import finding_lines
from npuscope.report.program import notice_table, noticed_lines
from npuscope.table.columns import Table
from npuscope.table.formats import many, rough_percent
from npuscope.table.parts import Heading, Notes, Part, Rows, Say
from npuscope.time.bound import Bound
from npuscope.time.certainty import certainty_of
from npuscope.time.estimate_forms import basis_told, estimate_told, interval_told
from npuscope.time.per_line import per_kernel
from npuscope.time.run import Simulated
from npuscope.time.uncertainty import Estimate, time_after, time_estimate


@dataclass(frozen=True)
class Told:
    """What there is to tell of a simulated run; `explained` is left out where only times are asked for."""

    file: str
    simulated: Simulated
    diagnosis: Diagnosis
    explained: Explanation | None = None
    anchored: Anchored | None = None  # what --measured adds

    @cached_property
    def kernels(self) -> Table:
        busy = busy_of(Work.of(self.simulated.trace)) if self.explained is None else self.explained.busy
        return per_kernel(self.simulated, busy, self.anchored.prediction.spread() if self.anchored else None)


def simulate(told: Told, wide: bool = False) -> Iterator[Part]:
    """What `npuscope simulate` prints."""
    simulated, anchored, explained = told.simulated, told.anchored, told.explained
    job, program = simulated.prepared.job, simulated.prepared.program
    counts = f"{many(len(job.shape), 'task')}, {many(len(job.block_class), 'block')}"
    how = "simulated" if anchored is None else "simulated on top of a capture"
    where = f"{told.file}: {program.recording.program} on {program.device.name}, {how}"
    yield Heading(f"{where}: {wall_told(simulated, anchored)}, {counts}")
    yield from causes(told.diagnosis)
    yield Heading("The run:")
    yield Notes(
        [
            _busy(simulated.bound),
            *(headline(explained)[1:] if explained else ()),  # without the window: it is the wall
            *_how_sure(simulated, anchored, wide),
            *noticed_lines([program.recording], [(program.recording, notice) for notice in simulated.grave]),
        ]
    )
    if anchored is not None:
        yield from anchor_report.prediction(anchored, wide)
    if explained is None:
        yield Rows(told.kernels, wide=wide)
        return
    yield Rows(explained.tables()["kernels"], KERNELS, wide=wide)
    yield Rows(explained.scheduling.tables()["ledger"])
    yield Notes(explained.bubbles.sentences(BLOCKERS))
    yield Notes(explained.notes, "note: ")


def _busy(bound: Bound) -> str:
    units = {
        "cube cores": bound.cube_busy,
        "vector cores": bound.vector_busy,
        "scheduler threads": bound.scheduler_busy,
        "orchestrator": bound.orchestrator_busy,
    }
    return "busy: " + ", ".join(f"{name} {rough_percent(share)}" for name, share in units.items())


def _how_sure(simulated: Simulated, anchored: Anchored | None, wide: bool) -> list[str]:
    """What the interval means; a guess that moves the wall; with --wide what the time rests on, too."""
    sure = certainty_of(simulated)
    lines = []
    if anchored is None:
        wall, kernel = _wall(simulated, None), time_estimate(1.0, "kernel", simulated.bound.kind)
        lines += [basis_told(wall.basis, wall.coverage, interval_told(kernel))]
    if sure.guess is not None and (wide or sure.guess.moves >= WORTH_A_LINE):
        lines.append(str(sure.guess))
    if wide:
        lines.append(str(sure))
    return lines


def _wall(simulated: Simulated, anchored: Anchored | None) -> Estimate:
    if anchored is not None:
        return time_after(simulated.wall_ns, anchored.prediction.change)
    return time_estimate(simulated.wall_ns, "wall", simulated.bound.kind)


def wall_told(simulated: Simulated, anchored: Anchored | None = None) -> str:
    """The wall with its interval."""
    return estimate_told(_wall(simulated, anchored))


def wall_dict(simulated: Simulated, anchored: Anchored | None = None) -> dict[str, object]:
    """The wall in nanoseconds with its interval."""
    wall = _wall(simulated, anchored)
    return {"value": wall.value, **wall.as_dict()}


def refused(file: str, device: str, errors: Sequence[Finding]) -> Iterator[Part]:
    """A program that does not run on the chip, in the words of `npuscope check`."""
    yield Heading(f"{file} cannot run on {device}: {many(len(errors), 'error')}")
    yield Say("\n".join(line for error in errors for line in finding_lines(error)))


def simulate_dict(told: Told) -> dict[str, object]:
    """The contract of `npuscope simulate --json` (docs/reference/json.md)."""
    simulated, anchored = told.simulated, told.anchored
    job, program, bound = simulated.prepared.job, simulated.prepared.program, simulated.bound
    return {
        "file": told.file,
        "program": program.recording.program,
        "device": program.device.name,
        **told.diagnosis.as_dict(),
        "wall_interval_ns": _wall(simulated, anchored).as_dict(),
        "tasks": len(job.shape),
        "blocks": len(job.block_class),
        "busy": {
            "cube": bound.cube_busy,
            "vector": bound.vector_busy,
            "scheduler": bound.scheduler_busy,
            "orchestrator": bound.orchestrator_busy,
        },
        "ring_wait_ns": round(bound.ring_wait_ns),
        "constants": certainty_of(simulated).as_dict(),
        "notes": list(program.recording.notes),
        "notices": notice_table((program.recording, notice) for notice in simulated.noticed).rows(),
        "per_kernel": told.kernels.rows(),
        **({} if anchored is None else {"anchor": anchor_report.prediction_dict(anchored)}),
    }


def refused_dict(file: str, device: str, errors: Sequence[Finding]) -> dict[str, object]:
    """The contract of `npuscope simulate --json` for a program that does not fit."""
    told = [{"id": e.id, "file": e.file, "line": e.line, "message": e.message, "fix": e.fix} for e in errors]
    return {"file": file, "device": device, "error": errors[0].message, "errors": told}
