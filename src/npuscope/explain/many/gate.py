"""The performance gate: limits of a budget, held against one or several captures of a run, and a baseline.

A limit is broken only where the noise cannot explain it: where the whole 95% interval of the value, or of its ratio to
the baseline, lies beyond the limit. A value beyond it whose interval is not is undecided. The interval comes from three
or more captures; for fewer the budget's `noise` counts. Counts have no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, inf, isfinite, log
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.toml_file import read_toml
from npuscope.explain.explanation import Explanation
from npuscope.explain.many.history import WALL, History
from npuscope.explain.many.ratio import CONFIDENCE, ENOUGH, Ratio, holm, more_runs, ratio_of, typical
from npuscope.explain.many.runs import Run
from npuscope.explain.ranks import explain_ranks
from npuscope.explain.waits import PARTS
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import CHANGE, COUNT, NUMBER, SHARE, TEXT, many
from npuscope.trace.core import Trace

EachRank = Sequence[Explanation]  # of one capture
LIMITS = Columns(
    "gate.limits",
    "A limit of the budget, in its order.",
    (
        Column("limit", TEXT, "the metric, and what it is of"),
        Column("value", NUMBER, "the median of the run's captures; null where one of them has none"),
        Column("allowed", TEXT, "the limit in words"),
        Column("baseline", NUMBER, "the median of the baseline's captures"),
        Column("change", CHANGE, "value over baseline, minus one"),
        Column("noise", SHARE, "by how much the value, or its ratio to the baseline, may be off (95%)"),
        Column("status", TEXT, "ok, undecided (beyond the limit by no more than the noise) or FAIL"),
        Column("more_runs", COUNT, "captures more of each side that would decide it", optional=True),
    ),
)

SCHEMA: dict[str, pl.DataType] = {
    column.key: pl.String() if column.form is TEXT else pl.Int64() if column.form is COUNT else pl.Float64()
    for column in LIMITS
}


@dataclass(frozen=True, repr=False)
class Gate(Tabular):
    """A row per limit, with what it came to."""

    table: pl.DataFrame
    captures: tuple[int, int]  # of the run, of the baseline
    held: int | None = None  # against a history: how many times were held against it; those that passed are left out

    in_json = ("passed", "undecided", "captures")

    @property
    def passed(self) -> bool:
        return not (self.table["status"] == "FAIL").any()

    @property
    def undecided(self) -> int:
        return int((self.table["status"] == "undecided").sum())

    def tables(self) -> dict[str, Table]:
        return {"limits": Table(LIMITS, self.table)}

    def title(self) -> str:
        failed = int((self.table["status"] == "FAIL").sum())
        limit, limits = ("limit", "") if self.held is None else ("time", "times held against the history")
        held = many(self.held or self.table.height, limit, limits)
        told = f"gate passed: {held}" if self.passed else f"gate FAILED: {failed} of {held}"
        open_ones = f", {self.undecided} undecided" if self.undecided else ""
        baseline = f", {self.captures[1]} of the baseline" if self.captures[1] else ""
        return f"{told}{open_ones} ({many(self.captures[0], 'capture')}{baseline})"


def gate(traces: Sequence[Trace], budget: Budget, baseline: Sequence[Trace] = ()) -> Gate:
    """Hold captures of one run against a budget, and against captures of a baseline where limits ask for it.

    Of several ranks the worst counts: that with the least where a limit is a minimum, else that with the most.
    """
    if not baseline and any(limit.max_increase is not None for limit in budget.limit):
        raise NpuscopeError("the budget limits an increase, and there is no baseline", remedy="Give --baseline.")
    run, before = ([explain_ranks(trace).explained for trace in given] for given in (traces, baseline))
    rows = [_row(limit, budget.noise, run, before) for limit in budget.limit]
    return Gate(pl.DataFrame(rows, schema=SCHEMA, orient="row"), (len(run), len(baseline)))


def _row(limit: Limit, noise: float, run: Sequence[EachRank], baseline: Sequence[EachRank]) -> tuple[object, ...]:
    noise = 0.0 if limit.metric in COUNTS else noise
    values, before = _values(limit, run), _values(limit, baseline)
    value, usual = (float(np.median(side)) if side else None for side in (values, before))
    change = None if value is None or not usual else value / usual - 1
    allowed = _allowed(limit)
    if value is None or (limit.max_increase is not None and usual is None):
        return (limit.name, value, allowed, usual, None, 0.0, "FAIL", None)  # what is limited must be there
    bounds = [] if limit.max is None else [_against(values, limit.max, noise)]
    bounds += [] if limit.min is None else [_against(values, limit.min, noise).turned]
    if limit.max_increase is not None and usual is not None:
        bounds.append(_increase(values, before, 1 + limit.max_increase, noise))
    worst = max(bounds, key=lambda bound: (bound.broken, bound.excess))
    status = "FAIL" if worst.broken else "undecided" if worst.excess > 0 else "ok"
    more = worst.more if status == "undecided" else None
    return (limit.name, value, allowed, usual, change, worst.noise, status, more)


def _allowed(limit: Limit) -> str:
    told = (
        "" if limit.max is None else f"at most {limit.max:g}",
        "" if limit.min is None else f"at least {limit.min:g}",
        "" if limit.max_increase is None else f"at most {limit.max_increase:+.1%}",
    )
    return " and ".join(text for text in told if text)


@dataclass(frozen=True)
class _Bound:
    """A value over what is allowed: by which share it exceeds it, with the ends of the interval of that."""

    excess: float
    low: float
    high: float
    noise: float
    more: int | None

    @property
    def broken(self) -> bool:
        return self.excess > 0 and self.low > 0

    @property
    def turned(self) -> _Bound:
        """For a minimum: what is too little is beyond it."""
        return _Bound(_inverse(self.excess), _inverse(self.high), _inverse(self.low), self.noise, self.more)


def _inverse(share: float) -> float:
    return 1 / (1 + share) - 1 if share > -1 else inf


def _against(values: Sequence[float], allowed: float, noise: float) -> _Bound:
    """Captures against a number."""
    from scipy.special import stdtrit

    middle = float(np.median(values))
    if allowed <= 0 or min(values) <= 0:  # no share of nothing
        beyond = (middle > allowed) - (middle < allowed)
        share = inf if beyond > 0 else -1.0 if beyond < 0 else 0.0
        return _Bound(share, share, share, 0.0, None)
    excess = middle / allowed - 1
    if len(values) < ENOUGH:
        return _Bound(excess, (1 + excess) / (1 + noise) - 1, (1 + excess) * (1 + noise) - 1, noise, None)
    found = typical(values)
    width = float(stdtrit(found.freedom, (1 + CONFIDENCE) / 2)) * found.variance**0.5
    size = found.mean - log(allowed)
    more = more_runs(size, found.variance, [found.runs]) if found.variance else None
    return _Bound(excess, exp(size - width) - 1, exp(size + width) - 1, exp(width) - 1, more)


def _increase(values: Sequence[float], before: Sequence[float], allowed: float, noise: float) -> _Bound:
    """Captures against those of a baseline."""
    if min(values) <= 0 or min(before) <= 0:
        return _against(values, float(np.median(before)) * allowed, 0.0)
    found: Ratio = ratio_of(before, values, noise)
    excess = float(np.median(values)) / float(np.median(before)) / allowed - 1
    share = found.high / found.value - 1
    return _Bound(excess, found.low / allowed - 1, found.high / allowed - 1, share, found.more_runs)


def _values(limit: Limit, explained: Sequence[EachRank]) -> list[float]:
    """A value per capture; none where one of them does not have what is limited."""
    values = [_worst(limit, ranks) for ranks in explained]
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


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


NOISE = 0.05  # single captures differ by 3 to 5% (pypto-lib docs/debug-and-tune/performance-tuning.md)
COUNTS = ("tasks", "count")
PER_TRACE = ("wall_us", "core_us", "on_core_us", "tasks", "overhead", "in_flight", "running")
PER_KERNEL = ("core_us", "on_core_us", "mean_us", "p95_us", "count")
PER_UNIT = ("busy", "idle_us")
PER_REASON = ("bubble_us", "path_us")


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


def read_budget(path: str | Path) -> Budget:
    """A budget from its file, checked."""
    path = Path(path)
    budget = read_toml(path, Budget, "a budget ([[limit]] tables; see docs/howto/ci.md)")
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


ALLOWED = 0.01  # a slowdown up to this share is nobody's trouble


def hold_against(history: History, runs: Sequence[Run], allowed: float = ALLOWED) -> Gate:
    """A row for the wall time, and one for every kernel that is not as it was. All are corrected together (Holm)."""
    found: list[tuple[str, float, float, Ratio]] = []
    count = 0
    for series in history.series:
        times = [run.wall_ns if series.name == WALL else run.kernels.get(series.name, 0.0) for run in runs]
        if min(times, default=0) <= 0:
            continue  # a kernel that is gone is not slower
        usual = series.stretches[-1].times
        count = max(count, len(usual))
        noise = 0.0 if history.exact else None
        ratio = ratio_of(usual[-1:] if history.exact else usual, times, noise)
        found.append((series.name, float(np.median(times)), float(np.median(usual)), ratio))
    if not found:
        raise NpuscopeError("nothing in the run is in the history")
    rows = []
    for (name, value, usual_ns, ratio), p in zip(found, holm([one[3].p for one in found]), strict=True):
        beyond = value / usual_ns - 1 > allowed
        sure = ratio.has_interval and p <= 1 - CONFIDENCE and ratio.low > 1
        status = "ok" if not beyond else "FAIL" if sure else "undecided"
        if status == "ok" and name != WALL:
            continue
        label = "wall_us" if name == WALL else f"core_us of {name}"
        change, more = value / usual_ns - 1, ratio.more_runs if status == "undecided" else None
        noise_told = ratio.high / ratio.value - 1 if ratio.has_interval else None
        rows.append((label, value / 1e3, f"at most {allowed:+.1%}", usual_ns / 1e3, change, noise_told, status, more))
    return Gate(pl.DataFrame(rows, schema=SCHEMA, orient="row"), (len(runs), count), len(found))
