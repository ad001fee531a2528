"""All questions about one trace asked together, sharing what they have in common."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import polars as pl

from npuscope.base import progress
from npuscope.explain import busy_idle
from npuscope.explain.busy_idle import Busy, FanOut, busy_of, fan_out_of
from npuscope.explain.diagnosis import Diagnosis
from npuscope.explain.diagnosis.whole_run import diagnose
from npuscope.explain.hidden_exposed import (
    Communication,
    Copies,
    Overlap,
    communication_of,
    copies_of,
    overlap_of,
    when_ran,
)
from npuscope.explain.idle_reasons import Bubbles, bubbles_of
from npuscope.explain.ledger import Scheduling, scheduling_of
from npuscope.explain.path import CriticalPath, path_of
from npuscope.explain.repetition import Steps, steps_of
from npuscope.explain.waits import Readiness, readiness
from npuscope.explain.work import Work, area_rules
from npuscope.table.columns import Column, Table, Tabular, all_rows
from npuscope.table.formats import TEXT, TIME
from npuscope.trace.core import Trace

KERNELS = busy_idle.KERNELS.plus(
    Column("area", TEXT, "its part of the model (docs/understand/numbers.md)", wide=True),
    Column("path_ns", TIME, "on the chain that decides when the run ends", title="critical path", explained=True),
    place="report.kernels",
)


@dataclass(frozen=True, repr=False)
class Explanation(Tabular):
    """What one trace says; each field is the result of the analysis of that name."""

    work: Work
    ready: Readiness
    diagnosis: Diagnosis
    busy: Busy
    bubbles: Bubbles
    path: CriticalPath
    scheduling: Scheduling
    fan_out: FanOut
    steps: Steps
    overlap: Overlap | None  # of the kernel set asked for
    communication: Communication | None
    copies: Copies | None

    @property
    def compute_ns(self) -> int:
        """When any compute ran."""
        return when_ran(self.work, "task").length

    @property
    def trace(self) -> Trace:
        return self.work.trace

    @property
    def notes(self) -> tuple[str, ...]:
        """What the capture lacks, and what of it does not count."""
        notes = [*self.bubbles.notes, *self.scheduling.notes, *self.path.notes]
        if self.work.duplicates:
            notes.append(f"{self.work.duplicates:,} rows list another row's work a second time and do not count.")
        return tuple(dict.fromkeys(notes))

    def tables(self) -> dict[str, Table]:
        busy = self.busy.tables()
        area = self.fan_out.kernels.select("kernel", "area").unique("kernel")
        on_path = self.path.by_kernel().select("kernel", "path_ns")
        kernels = busy["kernels"].frame.join(area, on="kernel", how="left", maintain_order="left")
        kernels = kernels.join(on_path, on="kernel", how="left", maintain_order="left")
        kernels = kernels.with_columns(pl.col("path_ns").fill_null(0))
        return {**busy, "kernels": Table(KERNELS, kernels), **self.bubbles.tables()}

    def title(self) -> str:
        return f"{self.diagnosis.verdict}\n{self.busy.title()}"

    def as_dict(self) -> dict[str, object]:
        """The contract of `npuscope report --json` (docs/reference/json.md)."""
        tables = self.tables()
        return {
            "format": self.trace.meta.format,
            "files": list(self.trace.meta.files),
            "device": self.trace.meta.device,
            **self.diagnosis.as_dict(),
            **self.busy.as_dict(),
            "bubbles": self.bubbles.by_reason,
            **all_rows({name: tables[name] for name in ("kernels", "idle", "blockers")}),
            "scheduling": self.scheduling.as_dict(),
            "critical_path": self.path.as_dict(),
            "fan_out": self.fan_out.as_dict(),
            "steps": self.steps.as_dict(),
            "overlap": None if self.overlap is None else self.overlap.as_dict(),
            "communication": None if self.communication is None else asdict(self.communication),
            "copies": None if self.copies is None else asdict(self.copies),
            "notes": list(self.notes),
        }


def explain(
    trace: Trace,
    kernels: str | None = None,
    areas: str | Path | None = None,
    cores: int | None = None,
    diagnosis: Diagnosis | None = None,
) -> Explanation:
    """Every analysis of the trace of one rank; `explain_ranks` takes several.

    `kernels` is a regular expression for the set whose hidden and exposed time is wanted, `areas` a TOML file of
    rules, `cores` the device's number of cores where the capture does not tell it, `diagnosis` one that knows more than
    the trace tells, as a simulation's does.
    """
    rules = area_rules(areas)
    parts = 7
    progress.report("explaining", 0, parts)
    work = Work.of(trace)
    ready = readiness(work)
    progress.report("explaining", 1, parts)
    found = bubbles_of(work, ready)
    progress.report("explaining", 2, parts)
    path = path_of(work, ready)
    ledger = scheduling_of(work, found, path, cores)
    progress.report("explaining", 4, parts)
    cut = steps_of(work)
    chosen = None if kernels is None else overlap_of(work, ready, work.kernels_named(kernels))
    comm, copies = communication_of(work), copies_of(work)
    result = Explanation(
        work=work,
        ready=ready,
        diagnosis=diagnosis or diagnose(work, ready, ledger, path, cut, comm, copies),
        busy=busy_of(work),
        bubbles=found,
        path=path,
        scheduling=ledger,
        fan_out=fan_out_of(work, cut, rules),
        steps=cut,
        overlap=chosen,
        communication=comm,
        copies=copies,
    )
    progress.report("explaining", parts, parts)
    return result
