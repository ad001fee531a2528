"""A simulated run as a report: the headline, then what the report of any trace says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npuscope.analysis.busy_idle import Busy
from npuscope.analysis.explanation import Explanation
from npuscope.analysis.forms import duration
from npuscope.check.findings import Finding
from npuscope.report import anchor as anchor_report
from npuscope.report import noticed
from npuscope.report.anchor import Anchored
from npuscope.report.check_text import finding_lines
from npuscope.report.counted import many
from npuscope.report.document import Heading, Notes, Part, Rows, Say
from npuscope.report.explain import report
from npuscope.simulate.certainty import certainty_of
from npuscope.simulate.estimate_forms import basis_told, estimate_told, interval_told
from npuscope.simulate.per_kernel import per_kernel
from npuscope.simulate.run import Simulated
from npuscope.simulate.uncertainty import Estimate, time_after, time_estimate


def simulate(
    file: str,
    simulated: Simulated,
    explained: Explanation,
    brief: bool = False,
    wide: bool = False,
    anchored: Anchored | None = None,
) -> Iterator[Part]:
    """What `npuscope simulate` prints; `brief` is --no-report, `anchored` what --measured adds."""
    job, program, bound = simulated.prepared.job, simulated.prepared.program, simulated.bound
    wall, kernel = _wall(simulated, anchored), time_estimate(1.0, "kernel", bound.name)
    counts = f"{many(len(job.shape), 'task')}, {many(len(job.block_class), 'block')}"
    how = "simulated" if anchored is None else "simulated on top of a capture"
    where = f"{file}: {program.recording.program} on {program.device.name}, {how}"
    shares = ", ".join(f"{name} {share:.1%}" for name, share in bound.shares.items() if share >= 0.001)
    waited = f"the orchestrator waited {duration(round(bound.ring_wait_ns))} for room in its rings"
    yield Heading(f"{where}: {wall_told(simulated, anchored)}, {counts}\n{bound}")
    yield Notes(
        [
            f"what limited it: {shares}",
            f"busy: cube {bound.cube_busy:.1%}, vector {bound.vector_busy:.1%}, "
            f"scheduler {bound.scheduler_busy:.1%}, orchestrator {bound.orchestrator_busy:.1%}",
            *([waited] if bound.ring_wait_ns >= 1 else []),
            str(certainty_of(simulated)),
            *(_basis(wall, kernel, bound.name) if anchored is None else ()),
            *noticed.notes([program.recording]),
            *noticed.findings([(program.recording, notice) for notice in simulated.grave]),
        ]
    )
    if anchored is not None:
        yield from anchor_report.prediction(anchored, wide)
    if brief:
        yield Rows(per_kernel(simulated, explained.busy, anchored.prediction.spread() if anchored else None), wide=wide)
    else:
        yield from report(file, file, explained, wide)


def _wall(simulated: Simulated, anchored: Anchored | None) -> Estimate:
    if anchored is not None:
        return time_after(simulated.wall_ns, anchored.prediction.change)
    return time_estimate(simulated.wall_ns, "wall", simulated.bound.name)


def _basis(wall: Estimate, kernel: Estimate, bound: str) -> list[str]:
    told = f"a kernel's time: measured ones are {interval_told(kernel)} times what is said here"
    return [basis_told(wall.basis, wall.coverage, bound), told]


def wall_told(simulated: Simulated, anchored: Anchored | None = None) -> str:
    """The wall with its interval."""
    return estimate_told(_wall(simulated, anchored).times(1e-3), "µs")


def wall_dict(simulated: Simulated, anchored: Anchored | None = None) -> dict[str, object]:
    """The wall in nanoseconds with its interval."""
    wall = _wall(simulated, anchored)
    return {"value": wall.value, **wall.as_dict()}


def refused(file: str, device: str, errors: Sequence[Finding]) -> Iterator[Part]:
    """A program that does not run on the chip, in the words of `npuscope check`."""
    yield Heading(f"{file} cannot run on {device}: {many(len(errors), 'error')}")
    yield Say("\n".join(line for error in errors for line in finding_lines(error)))


def simulate_dict(file: str, simulated: Simulated, busy: Busy, anchored: Anchored | None = None) -> dict[str, object]:
    """The contract of `npuscope simulate --json` (docs/json.md)."""
    job, program, bound = simulated.prepared.job, simulated.prepared.program, simulated.bound
    return {
        "file": file,
        "program": program.recording.program,
        "device": program.device.name,
        "wall_ns": simulated.wall_ns,
        "wall_interval_ns": _wall(simulated, anchored).as_dict(),
        "tasks": len(job.shape),
        "blocks": len(job.block_class),
        "bound": bound.name,
        "bound_shares": bound.shares,
        "busy": {
            "cube": bound.cube_busy,
            "vector": bound.vector_busy,
            "scheduler": bound.scheduler_busy,
            "orchestrator": bound.orchestrator_busy,
        },
        "ring_wait_ns": round(bound.ring_wait_ns),
        "constants": certainty_of(simulated).as_dict(),
        **noticed.noticed_dict(program.recording, simulated.noticed),
        "per_kernel": per_kernel(simulated, busy, anchored.prediction.spread() if anchored else None).rows(),
        **({} if anchored is None else {"anchor": anchor_report.prediction_dict(anchored)}),
    }


def refused_dict(file: str, device: str, errors: Sequence[Finding]) -> dict[str, object]:
    """The contract of `npuscope simulate --json` for a program that does not fit."""
    told = [{"id": e.id, "file": e.file, "line": e.line, "message": e.message, "fix": e.fix} for e in errors]
    return {"file": file, "device": device, "error": errors[0].message, "errors": told}
