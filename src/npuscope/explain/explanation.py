"""All questions about one trace, each answered once, when it is first asked, sharing what they have in common."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import polars as pl

from npuscope.base import progress
from npuscope.base.errors import NpuscopeError
from npuscope.base.interval import Interval
from npuscope.base.process_memory import give_back
from npuscope.explain import busy_idle
from npuscope.explain.busy_idle import Busy, FanOut, busy_of, fan_out_of
from npuscope.explain.diagnosis import Diagnosis
from npuscope.explain.diagnosis.cause import Refine
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
from npuscope.explain.leaves import Leaves, leaves_of
from npuscope.explain.ledger import Scheduling, scheduling_of
from npuscope.explain.passes.steps import steps_of
from npuscope.explain.path import CriticalPath, path_of
from npuscope.explain.repetition import Steps
from npuscope.explain.waits import Readiness, readiness
from npuscope.explain.work import Work, area_rules
from npuscope.table.columns import Column, Table, Tabular
from npuscope.table.formats import TEXT, TIME
from npuscope.trace.core import SIMULATED, Trace

T = TypeVar("T")
ANALYSES = 11
MANY = 10_000  # slices, whose temporary arrays leave holes that are worth giving back
KERNELS = busy_idle.KERNELS.plus(
    Column("area", TEXT, "its part of the model (docs/understand/numbers.md)", wide=True),
    Column("path_ns", TIME, "on the chain that decides when the run ends", title="critical path", explained=True),
    Column("usual_ns", TIME, "core time in a usual step, the median of those that are no outliers", title="usual step",
           optional=True, explained=True),
    place="report.kernels",
)  # fmt: skip
FEWEST_USUAL = 2  # steps, beside odd ones


class analysis(cached_property[T]):
    """An answer that is computed when it is first asked for."""

    def __get__(self, instance: Any, owner: type | None = None) -> T:  # type: ignore[override]
        new = instance is not None and self.attrname not in vars(instance)
        if new:
            progress.report("explaining", min(len(vars(instance)), ANALYSES), ANALYSES)
        value: T = super().__get__(instance, owner)
        if new and instance.work.slices.height > MANY:
            give_back()
        return value


class Explanation(Tabular):
    """What the trace of one rank says; `explain_ranks` takes several.

    `kernels` is a regular expression for the set whose hidden and exposed time is wanted, `areas` a TOML file of
    rules, `cores` the device's number of cores where the capture does not tell it, `diagnosis` one that is known
    already, `refine` what somebody who knows more than the trace tells, as a simulation does, makes of a cause.
    """

    in_json = (
        "scheduling",
        "critical_path",
        "fan_out",
        "steps",
        "overlap",
        "communication",
        "copies",
        "leaves",
        "notes",
    )

    def __init__(
        self,
        trace: Trace,
        kernels: str | None = None,
        areas: str | Path | None = None,
        cores: int | None = None,
        diagnosis: Diagnosis | None = None,
        refine: Refine | None = None,
    ) -> None:
        self._rules = area_rules(areas)
        self.work = Work.of(trace)
        self._asked = None if kernels is None else self.work.kernels_named(kernels)
        self._cores = cores
        self._refine = refine
        if diagnosis is not None:
            vars(self)["diagnosis"] = diagnosis

    @property
    def trace(self) -> Trace:
        return self.work.trace

    @analysis
    def ready(self) -> Readiness:
        return readiness(self.work)

    @analysis
    def busy(self) -> Busy:
        return busy_of(self.work)

    @analysis
    def bubbles(self) -> Bubbles:
        return bubbles_of(self.work, self.ready)

    @analysis
    def path(self) -> CriticalPath:
        return path_of(self.work, self.ready)

    @analysis
    def scheduling(self) -> Scheduling:
        return scheduling_of(self.work, self.bubbles, self.path, self._cores)

    @analysis
    def steps(self) -> Steps:
        return steps_of(self.work)

    @analysis
    def fan_out(self) -> FanOut:
        return fan_out_of(self.work, self.steps, self._rules)

    @analysis
    def overlap(self) -> Overlap | None:
        """Of the kernels asked for."""
        return None if self._asked is None else overlap_of(self.work, self.ready, self._asked)

    @analysis
    def communication(self) -> Communication | None:
        return communication_of(self.work)

    @analysis
    def copies(self) -> Copies | None:
        return copies_of(self.work)

    @analysis
    def leaves(self) -> Leaves | None:
        """Of a run of CANN's own PyPTO."""
        return leaves_of(self.work)

    @analysis
    def diagnosis(self) -> Diagnosis:
        if self._simulation is not None and self._refine is None:
            return Diagnosis.from_dict(self._simulation["diagnosis"])
        parts = (self.work, self.ready, self.scheduling, self.path, self.steps, self.communication, self.copies)
        return diagnose(*parts, self._refine)

    @cached_property
    def _simulation(self) -> Mapping[str, Any] | None:
        """What a simulation has written beside its trace."""
        found: Mapping[str, Any] | None = self.trace.meta.notes.get(SIMULATED)
        if found is not None:
            try:
                _ = Diagnosis.from_dict(found["diagnosis"]), Interval.from_dict(found["wall"])
            except (LookupError, TypeError, ValueError, AttributeError) as error:
                what = "what the simulation wrote beside this trace is damaged"
                raise NpuscopeError(what, remedy="Write the trace again.") from error
        return found

    @property
    def is_simulated(self) -> bool:
        return self.trace.meta.clock == "simulated" or self._simulation is not None

    @property
    def predicted_wall(self) -> Interval | None:
        """The wall in nanoseconds with its interval, where the run was simulated and says so."""
        return None if self._simulation is None else Interval.from_dict(self._simulation["wall"])

    @property
    def regime(self) -> str:
        """Of a simulated run: by which its intervals are learnt (time/bound.py)."""
        return "" if self._simulation is None else str(self._simulation.get("regime", ""))

    @property
    def critical_path(self) -> CriticalPath:
        return self.path

    @property
    def compute_ns(self) -> int:
        """When any compute ran."""
        return when_ran(self.work, "task").length

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
        kernels = self._steady_first(kernels)
        return {**busy, "kernels": Table(KERNELS, kernels), **self.bubbles.tables()}

    def _steady_first(self, kernels: pl.DataFrame) -> pl.DataFrame:
        """The kernels with what each takes in a usual step, by which they are ordered where other steps are odd: one
        step that waits must not decide what the run is said to be made of."""
        steps = self.steps.table.sort("start")
        odd = int(steps["outlier"].sum()) if steps.height else 0
        if not odd or steps.height - odd < FEWEST_USUAL:
            return kernels.with_columns(usual_ns=pl.lit(None, dtype=pl.Float64))
        work = self.work
        place = np.searchsorted(steps["start"].to_numpy(), work.start, side="right") - 1
        usual = (~steps["outlier"]).to_numpy()
        here = (place >= 0) & usual[place]
        spent = np.zeros((len(work.kernels), steps.height))
        np.add.at(spent, (work.kernel[here], place[here]), (work.end - work.start)[here])
        of_kernel = pl.DataFrame({"kernel": list(work.kernels), "usual_ns": np.median(spent[:, usual], axis=1)})
        found = kernels.join(of_kernel, on="kernel", how="left", maintain_order="left")
        return found.sort("usual_ns", descending=True, nulls_last=True, maintain_order=True)

    def title(self) -> str:
        return f"{self.diagnosis.verdict}\n{self.busy.title()}"

    def as_dict(self) -> dict[str, object]:
        """The contract of `npuscope report --json` (docs/reference/json.md)."""
        meta = self.trace.meta
        return {
            "format": meta.format,
            "files": list(meta.files),
            "device": meta.device,
            "simulated": self.is_simulated,
            "wall_interval_ns": None if self.predicted_wall is None else self.predicted_wall.as_dict(),
            **self.diagnosis.as_dict(),
            **self.busy.as_dict(),
            **super().as_dict(),
            "units": self.busy.tables()["units"].keyed(),
            "bubbles": self.bubbles.by_reason,
        }


explain = Explanation
