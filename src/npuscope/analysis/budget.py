"""The performance gate: limits from a TOML file, held against one or several captures of a run, and a baseline.

A limit fails only where the excess is larger than the noise: half the relative range of three or more captures, else
the budget's `noise`. Counts have no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from npuscope.analysis.explanation import Explanation
from npuscope.analysis.forms import CHANGE, NUMBER, SHARE, TEXT
from npuscope.analysis.ranks import explain_ranks
from npuscope.analysis.table import Column, Columns, Table, Tabular, all_rows
from npuscope.analysis.waits import PARTS
from npuscope.errors import BadInput, NpuscopeError
from npuscope.toml_file import read_toml
from npuscope.trace.core import Trace

NOISE = 0.05  # single captures differ by 3 to 5 % (pypto-lib docs/debug-and-tune/performance-tuning.md)
ENOUGH = 3  # captures from which the noise is measured
COUNTS = ("tasks", "count")
EachRank = Sequence[Explanation]  # of one capture
PER_TRACE = ("wall_us", "core_us", "on_core_us", "tasks", "overhead", "in_flight", "running")
PER_KERNEL = ("core_us", "on_core_us", "mean_us", "p95_us", "count")
PER_UNIT = ("busy", "idle_us")
PER_REASON = ("bubble_us", "path_us")
LIMITS = Columns(
    "gate.limits",
    "A limit of the budget, in its order.",
    (
        Column("limit", TEXT, "the metric, and what it is of"),
        Column("value", NUMBER, "the median of the run's captures; null where one of them has none"),
        Column("allowed", TEXT, "the limit in words"),
        Column("baseline", NUMBER, "the median of the baseline's captures"),
        Column("change", CHANGE, "value over baseline, minus one"),
        Column("noise", SHARE, "by how much single captures differ"),
        Column("status", TEXT, "ok, within noise or FAIL"),
    ),
)


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of a budget. `max` and `min` are absolute, `max_increase` is a share of the baseline."""

    metric: str
    kernel: str | None = None
    unit: str | None = None
    reason: str | None = None
    max: float | None = None
    min: float | None = None
    max_increase: float | None = None

    @property
    def name(self) -> str:
        of = self.kernel or self.unit or self.reason
        return self.metric if of is None else f"{self.metric} of {of}"


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file: `noise` and a list of [[limit]] tables."""

    limit: list[Limit]
    noise: float = NOISE


@dataclass(frozen=True, repr=False)
class Gate(Tabular):
    """A row per limit, with what it came to."""

    table: pl.DataFrame
    captures: tuple[int, int]  # of the run, of the baseline

    @property
    def passed(self) -> bool:
        return not (self.table["status"] == "FAIL").any()

    def tables(self) -> dict[str, Table]:
        return {"limits": Table(LIMITS, self.table)}

    def title(self) -> str:
        failed = int((self.table["status"] == "FAIL").sum())
        told = "gate passed" if self.passed else f"gate FAILED: {failed} of {self.table.height} limits"
        baseline = f", {self.captures[1]} of the baseline" if self.captures[1] else ""
        return f"{told} ({self.captures[0]} capture(s){baseline})"

    def as_dict(self) -> dict[str, object]:
        return {"passed": self.passed, "captures": list(self.captures), **all_rows(self.tables())}


def read_budget(path: str | Path) -> Budget:
    """A budget from its file, checked."""
    path = Path(path)
    budget = read_toml(path, Budget, "a budget ([[limit]] tables; see docs/gate.md)")
    for number, limit in enumerate(budget.limit, 1):
        known = _known(limit)
        if limit.metric not in known:
            what = f"limit {number}: no metric '{limit.metric}' here"
            raise BadInput(what, path=path, remedy=f"Choose one of {', '.join(known)}.")
        if limit.reason not in (None, *PARTS):
            raise BadInput(
                f"limit {number}: no reason '{limit.reason}'", path=path, remedy=f"See {', '.join(PARTS[:7])}."
            )
        if sum(of is not None for of in (limit.kernel, limit.unit, limit.reason)) > 1:
            raise BadInput(f"limit {number} names two of kernel, unit and reason; a limit is on one", path=path)
        if not all(isfinite(bound) for bound in (limit.max, limit.min, limit.max_increase) if bound is not None):
            raise BadInput(f"limit {number} ({limit.name}) is no finite number", path=path)
        if limit.max is None and limit.min is None and limit.max_increase is None:
            raise BadInput(f"limit {number} ({limit.name}) has neither max, min nor max_increase", path=path)
    if not budget.limit:
        raise BadInput("a budget without a [[limit]]", path=path)
    if not 0 <= budget.noise < 1:
        raise BadInput(f"noise is {budget.noise}; it is a share from 0 to 1", path=path)
    return budget


def _known(limit: Limit) -> tuple[str, ...]:
    for given, metrics in ((limit.kernel, PER_KERNEL), (limit.unit, PER_UNIT), (limit.reason, PER_REASON)):
        if given is not None:
            return metrics
    return PER_TRACE


def gate(traces: Sequence[Trace], budget: Budget, baseline: Sequence[Trace] = ()) -> Gate:
    """Hold captures of one run against a budget, and against captures of a baseline where limits ask for it.

    Of several ranks the worst counts: that with the least where a limit is a minimum, else that with the most.
    """
    if not baseline and any(limit.max_increase is not None for limit in budget.limit):
        raise NpuscopeError("the budget limits an increase, and there is no baseline", remedy="Give --baseline.")
    run, before = ([explain_ranks(trace).explained for trace in given] for given in (traces, baseline))
    rows = [_row(limit, budget.noise, run, before) for limit in budget.limit]
    schema = {"limit": pl.String, "value": pl.Float64, "allowed": pl.String, "baseline": pl.Float64,
              "change": pl.Float64, "noise": pl.Float64, "status": pl.String}  # fmt: skip
    return Gate(pl.DataFrame(rows, schema=schema, orient="row"), (len(run), len(baseline)))


def _row(limit: Limit, noise: float, run: Sequence[EachRank], baseline: Sequence[EachRank]) -> tuple[object, ...]:
    value, spread = _median(limit, run, noise)
    before, before_spread = _median(limit, baseline, noise)
    spread = max(spread, before_spread if before is not None else 0.0)
    change = None if value is None or not before else value / before - 1
    allowed = " and ".join(
        text
        for text in (
            "" if limit.max is None else f"at most {limit.max:g}",
            "" if limit.min is None else f"at least {limit.min:g}",
            "" if limit.max_increase is None else f"at most {limit.max_increase:+.1%}",
        )
        if text
    )
    if value is None or (limit.max_increase is not None and before is None):
        return (limit.name, value, allowed, before, None, spread, "FAIL")  # what is limited must be there
    excess = [0.0]
    if limit.max is not None:
        excess.append(_beyond(value, limit.max))
    if limit.min is not None:
        excess.append(_beyond(limit.min, value))
    if limit.max_increase is not None and before is not None:
        excess.append(_beyond(value, before * (1 + limit.max_increase)))
    worst = max(excess)
    status = "ok" if worst <= 0 else "within noise" if worst <= spread else "FAIL"
    return (limit.name, value, allowed, before, change, spread, status)


def _beyond(larger: float, smaller: float) -> float:
    """By which share the one exceeds the other."""
    if larger <= smaller:
        return 0.0
    return larger / smaller - 1 if smaller > 0 else float("inf")


def _median(limit: Limit, explained: Sequence[EachRank], noise: float) -> tuple[float | None, float]:
    """The median over captures and its noise; None where a capture does not have what is limited."""
    values = [_worst(limit, ranks) for ranks in explained]
    known = [v for v in values if v is not None]
    if not values or len(known) < len(values):
        return None, 0.0
    middle = float(np.median(known))
    if limit.metric in COUNTS:
        return middle, 0.0
    if len(known) < ENOUGH:
        return middle, noise
    return middle, (max(known) - min(known)) / 2 / middle if middle else 0.0


def _worst(limit: Limit, ranks: EachRank) -> float | None:
    """Of the rank furthest on the wrong side; None where a rank does not have what is limited."""
    values = [_value(limit, e) for e in ranks]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    return min(known) if limit.max is None and limit.max_increase is None else max(known)


def _value(limit: Limit, e: Explanation) -> float | None:
    if len(e.work.lane) == 0:
        return None  # an empty capture keeps no limit
    if limit.kernel is not None:
        rows = e.busy.kernels.filter(pl.col("kernel") == limit.kernel).to_dicts()
        column = limit.metric.replace("_us", "_ns")
        return _told(rows[0][column], limit.metric) if rows else None
    if limit.unit is not None:
        rows = e.busy.units.filter(pl.col("unit").cast(pl.String) == limit.unit).to_dicts()
        column = "share" if limit.metric == "busy" else "idle_ns"
        return _told(rows[0][column], limit.metric) if rows else None
    if limit.reason is not None:
        parts = e.bubbles.by_reason if limit.metric == "bubble_us" else e.path.by_part()
        merged = any(limit.reason in part.split("+") and ns for part, ns in parts.items() if part != limit.reason)
        return None if merged else _told(parts.get(limit.reason, 0), limit.metric)  # a part of it cannot be told
    values = {
        "wall_us": e.work.wall,
        "core_us": e.busy.core_ns,
        "on_core_us": e.busy.on_core_ns,
        "tasks": e.scheduling.tasks,
        "overhead": e.scheduling.overhead,
        "in_flight": e.scheduling.in_flight,
        "running": e.busy.running,
    }
    return _told(values[limit.metric], limit.metric)


def _told(value: float | None, metric: str) -> float | None:
    return None if value is None else value / 1000 if metric.endswith("_us") else float(value)
