"""A simulated run as a report: how long, why, how sure, and where the time of cores went."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npuscope.answer.prediction import Prediction
from npuscope.check.rule import Finding
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
from npuscope.time.per_line import per_kernel
from npuscope.time.uncertainty import basis_told, estimate_told, interval_told, time_estimate


def simulate(
    prediction: Prediction, anchored: Anchored | None = None, full: bool = True, wide: bool = False
) -> Iterator[Part]:
    """What `npuscope simulate` prints; not in `full` only its times, before anything is known of findings."""
    simulated = prediction.simulated
    job, program = simulated.prepared.job, simulated.prepared.program
    counts = f"{many(len(job.shape), 'task')}, {many(len(job.block_class), 'block')}"
    how = "simulated" if anchored is None else "simulated on top of a capture"
    where = f"{prediction.request.file}: {program.recording.program} on {program.device.name}, {how}"
    yield Heading(f"{where}: {estimate_told(prediction.estimate)}, {counts}")
    yield from causes(prediction.diagnosis if full else prediction.limits)
    explained = prediction.explanation if full else None
    yield Heading("The run:")
    yield Notes(
        [
            _busy(simulated.bound),
            *(headline(explained)[1:] if explained else ()),  # without the window: it is the wall
            *_how_sure(prediction, wide),
            *noticed_lines([program.recording], [(program.recording, notice) for notice in simulated.grave]),
        ]
    )
    if anchored is not None:
        yield from anchor_report.prediction(anchored, wide)
    if explained is None:
        yield Rows(_kernels(prediction, anchored), wide=wide)
        return
    yield Rows(explained.tables()["kernels"], KERNELS, wide=wide)
    yield Rows(explained.scheduling.tables()["ledger"])
    yield Notes(explained.bubbles.sentences(BLOCKERS))
    yield Notes(explained.notes, "note: ")


def _kernels(prediction: Prediction, anchored: Anchored | None) -> Table:
    return per_kernel(
        prediction.simulated, prediction.timeline.busy, anchored.prediction.spread() if anchored else None
    )


def _busy(bound: Bound) -> str:
    units = {
        "cube cores": bound.cube_busy,
        "vector cores": bound.vector_busy,
        "scheduler threads": bound.scheduler_busy,
        "orchestrator": bound.orchestrator_busy,
    }
    return "busy: " + ", ".join(f"{name} {rough_percent(share)}" for name, share in units.items())


def _how_sure(prediction: Prediction, wide: bool) -> list[str]:
    """What the interval means; a guess that moves the wall; with --wide what the time rests on, too."""
    sure = certainty_of(prediction.simulated)
    lines = []
    if prediction.request.base is None:
        wall, kernel = prediction.estimate, time_estimate(1.0, "kernel", prediction.simulated.bound.kind)
        lines += [basis_told(wall.basis, wall.coverage, interval_told(kernel))]
    if sure.guess is not None and (wide or sure.guess.moves >= WORTH_A_LINE):
        lines.append(str(sure.guess))
    if wide:
        lines.append(str(sure))
    return lines


def refused(file: str, device: str, errors: Sequence[Finding]) -> Iterator[Part]:
    """A program that does not run on the chip, in the words of `npuscope check`."""
    yield Heading(f"{file} cannot run on {device}: {many(len(errors), 'error')}")
    yield Say("\n".join(line for error in errors for line in finding_lines(error)))


def simulate_dict(prediction: Prediction, anchored: Anchored | None = None, full: bool = True) -> dict[str, object]:
    """The contract of `npuscope simulate --json` (docs/reference/json.md)."""
    simulated = prediction.simulated
    job, program, bound = simulated.prepared.job, simulated.prepared.program, simulated.bound
    return {
        "file": prediction.request.file,
        "program": program.recording.program,
        "device": program.device.name,
        **(prediction.diagnosis if full else prediction.limits).as_dict(),
        "wall_interval_ns": prediction.estimate.as_dict(),
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
        "per_kernel": _kernels(prediction, anchored).rows(),
        **({} if anchored is None else {"anchor": anchor_report.prediction_dict(anchored)}),
    }


def refused_dict(file: str, device: str, errors: Sequence[Finding]) -> dict[str, object]:
    """The contract of `npuscope simulate --json` for a program that does not fit."""
    told = [{"id": e.id, "file": e.file, "line": e.line, "message": e.message, "fix": e.fix} for e in errors]
    return {"file": file, "device": device, "error": errors[0].message, "errors": told}
