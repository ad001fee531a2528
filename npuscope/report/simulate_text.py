"""A simulated run as text and as JSON: the headline, then what the report of any trace says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import polars as pl

from npuscope.analysis.busy_idle import Busy
from npuscope.analysis.explanation import Explanation
from npuscope.analysis.table import frame_lines, microseconds, printable
from npuscope.check.findings import Finding
from npuscope.report import noticed
from npuscope.report.check_text import finding_lines, many
from npuscope.report.explain_text import report_text
from npuscope.report.noticed import GRAVE, note_lines
from npuscope.simulate.bound import Bound
from npuscope.simulate.certainty import certainty_of
from npuscope.simulate.run import Simulated


def headline(file: str, simulated: Simulated, bound: Bound) -> str:
    """Time, counts and bound."""
    job, program = simulated.prepared.job, simulated.prepared.program
    recording = program.recording
    counts = f"{many(len(job.shape), 'task')}, {many(len(job.block_class), 'block')}"
    where = f"{printable(file)}: {printable(program.recording.program)} on {program.device.name}, simulated"
    shares = ", ".join(f"{name} {share:.1%}" for name, share in bound.shares.items() if share >= 0.001)
    waited = microseconds(round(bound.ring_wait_ns))
    room = [f"  the orchestrator waited {waited} µs for room in its rings"] if bound.ring_wait_ns >= 1 else []
    return "\n".join(
        [
            f"{where}: {microseconds(simulated.wall_ns)} µs, {counts}",
            f"{bound}",
            f"  what limited it: {shares}",
            f"  busy: cube {bound.cube_busy:.1%}, vector {bound.vector_busy:.1%}, "
            f"scheduler {bound.scheduler_busy:.1%}, orchestrator {bound.orchestrator_busy:.1%}",
            *room,
            f"  {certainty_of(simulated.prepared)}",
            *(f"  {line}" for line in [*note_lines([recording]), *noticed.finding_lines([recording], GRAVE)]),
        ]
    )


def simulate_text(file: str, simulated: Simulated, bound: Bound, explained: Explanation) -> str:
    """What `npuscope simulate` prints."""
    return f"{headline(file, simulated, bound)}\n\n{report_text(file, explained)}"


def brief_text(file: str, simulated: Simulated, bound: Bound, busy: Busy) -> str:
    """What `npuscope simulate --no-report` prints."""
    return "\n".join([headline(file, simulated, bound), "", *frame_lines(per_kernel(simulated, busy))])


def refused_text(file: str, device: str, errors: Sequence[Finding]) -> str:
    """A program that does not run on the chip, in the words of `npuscope check`."""
    head = f"{printable(file)} cannot run on {device}: {many(len(errors), 'error')}"
    return "\n".join([head, *(line for error in errors for line in finding_lines(error))])


def per_kernel(simulated: Simulated, busy: Busy) -> pl.DataFrame:
    """Kernels by core time; `count` are slices, of which a block on a cube and two vector cores has three."""
    tasks = simulated.prepared.program.recording.tasks
    counts = pl.DataFrame(
        {"kernel": [t.kernel for t in tasks], "blocks": simulated.prepared.job.blocks},
        schema={"kernel": pl.String, "blocks": pl.Int64},
    )
    launched = counts.group_by("kernel").agg(pl.len().alias("tasks"), pl.col("blocks").sum())
    times = busy.kernels.select("kernel", "count", "core_ns", "on_core_ns", "mean_ns")
    joined = times.join(launched, on="kernel", how="left", maintain_order="left")
    return joined.select("kernel", "tasks", "blocks", "count", "core_ns", "on_core_ns", "mean_ns")


def simulate_dict(file: str, simulated: Simulated, bound: Bound, busy: Busy) -> dict[str, Any]:
    """The contract of `npuscope simulate --json` (docs/json.md)."""
    job, program = simulated.prepared.job, simulated.prepared.program
    sure = certainty_of(simulated.prepared)
    return {
        "file": file,
        "program": program.recording.program,
        "device": program.device.name,
        "wall_ns": simulated.wall_ns,
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
        "costs": {
            "guessed_share": sure.guessed_share,
            "ops": [asdict(one) for one in sure.ops],
        },
        **noticed.noticed_dict(program.recording),
        "per_kernel": per_kernel(simulated, busy).to_dicts(),
    }


def refused_dict(file: str, device: str, errors: Sequence[Finding]) -> dict[str, Any]:
    """The contract of `npuscope simulate --json` for a program that does not fit."""
    told = [{"id": e.id, "file": e.file, "line": e.line, "message": e.message, "fix": e.fix} for e in errors]
    return {"file": file, "device": device, "error": errors[0].message, "errors": told}
