"""The performance gate: limits of a budget, held against one or several captures of a run, and a baseline; or the
newest runs held against a history, each time against the runs since its last change.

A limit is broken only where the noise cannot explain it: where the whole 95% interval of the value, or of its ratio to
the baseline, lies beyond the limit. A value beyond it whose interval is not is undecided. The interval comes from three
or more captures; for fewer the budget's `noise` counts. Counts have no noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, inf, isfinite, log
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.toml_file import read_toml
from npuscope.explain.explanation import Explanation
from npuscope.explain.many.history import WALL, History
from npuscope.explain.many.ratio import CONFIDENCE, ENOUGH, Ratio, holm, more_runs, ratio_of, typical
from npuscope.explain.many.runs import Run, check_ran
from npuscope.explain.ranks import explain_ranks
from npuscope.explain.waits import PARTS
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import CHANGE, COUNT, NUMBER, SHARE, TEXT, many
from npuscope.trace.core import Trace

NOISE = 0.05  # single captures differ by 3 to 5% (pypto-lib docs/debug-and-tune/performance-tuning.md)
ALLOWED = 0.01  # a slowdown up to this share is nobody's trouble
COUNTS = ("tasks", "count")
METRICS = {  # of what -> the metrics that can be limited
    None: ("wall_us", "core_us", "on_core_us", "tasks", "overhead", "in_flight", "running"),
    "kernel": ("core_us", "on_core_us", "mean_us", "p95_us", "count"),
    "unit": ("busy", "idle_us"),
    "reason": ("bubble_us", "path_us"),
}
LIMITS = Columns(
    "gate.limits",
    "A limit of the budget, in its order.",
    Column("limit", TEXT, "the metric, and what it is of"),
    Column("value", NUMBER, "the median of the run's captures; null where one of them has none"),
    Column("allowed", TEXT, "the limit in words"),
    Column("baseline", NUMBER, "the median of the baseline's captures"),
    Column("change", CHANGE, "value over baseline, minus one"),
    Column("noise", SHARE, "by how much the value, or its ratio to the baseline, may be off (95%)"),
    Column("status", TEXT, "ok, undecided (beyond the limit by no more than the noise) or FAIL"),
    Column("more_runs", COUNT, "captures more of each side that would decide it", optional=True),
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
    def of(self) -> list[str]:
        """Which of kernel, unit and reason it is on."""
        return [name for name in ("kernel", "unit", "reason") if getattr(self, name) is not None]

    @property
    def name(self) -> str:
        return f"{self.metric} of {getattr(self, self.of[0])}" if self.of else self.metric


class Budget(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file: `noise` and a list of [[limit]] tables."""

    limit: list[Limit]
    noise: float = NOISE


def read_budget(path: str | Path) -> Budget:
    """A budget from its file, checked."""
    path = Path(path)
    budget = read_toml(path, Budget, "a budget ([[limit]] tables; see docs/howto/ci.md)")
    for number, limit in enumerate(budget.limit, 1):
        known = METRICS[limit.of[0] if limit.of else None]
        bounds = [bound for bound in (limit.max, limit.min, limit.max_increase) if bound is not None]
        wrong, remedy = "", ""
        if limit.metric not in known:
            wrong, remedy = f": no metric '{limit.metric}' here", f"Choose one of {', '.join(known)}."
        elif limit.reason not in (None, *PARTS):
            wrong, remedy = f": no reason '{limit.reason}'", f"See {', '.join(PARTS[:7])}."
        elif len(limit.of) > 1:
            wrong = " names two of kernel, unit and reason; a limit is on one"
        elif not all(isfinite(bound) for bound in bounds):
            wrong = f" ({limit.name}) is no finite number"
        elif limit.max_increase is not None and limit.max_increase <= -1:
            wrong, remedy = f" ({limit.name}) allows no time at all", "max_increase is a share: 0.05 for 5% more."
        elif not bounds:
            wrong = f" ({limit.name}) has neither max, min nor max_increase"
        if wrong:
            raise BadInput(f"limit {number}{wrong}", path=path, remedy=remedy)
    if not budget.limit:
        raise BadInput("a budget without a [[limit]]", path=path)
    if not 0 <= budget.noise < 1:
        raise BadInput(f"noise is {budget.noise}; it is a share from 0 to 1", path=path)
    return budget


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
        result = f"gate passed: {held}" if self.passed else f"gate FAILED: {failed} of {held}"
        open_ones = f", {self.undecided} undecided" if self.undecided else ""
        baseline = f", {self.captures[1]} of the baseline" if self.captures[1] else ""
        return f"{result}{open_ones} ({many(self.captures[0], 'capture')}{baseline})"


def gate(traces: Sequence[Trace], budget: Budget, baseline: Sequence[Trace] = ()) -> Gate:
    """Hold captures of one run against a budget, and against captures of a baseline where limits ask for it.

    Of several ranks the worst counts: that with the least where a limit is a minimum, else that with the most.
    """
    if not baseline and any(limit.max_increase is not None for limit in budget.limit):
        raise NpuscopeError("the budget limits an increase, and there is no baseline", remedy="Give --baseline.")
    run, before = ([explain_ranks(trace).explained for trace in given] for given in (traces, baseline))
    for trace, ranks in zip([*traces, *baseline], [*run, *before], strict=True):
        check_ran(max((rank.work.wall for rank in ranks), default=0), next(iter(trace.meta.files), None))
    rows = [_row(limit, budget.noise, _values(limit, run), _values(limit, before)) for limit in budget.limit]
    return Gate(LIMITS.table(rows).frame, (len(run), len(baseline)))


def _row(limit: Limit, noise: float, values: list[float], before: list[float]) -> tuple[object, ...]:
    noise = 0.0 if limit.metric in COUNTS else noise
    value, usual = (float(np.median(side)) if side else None for side in (values, before))
    change = None if value is None or not usual else value / usual - 1
    parts, bounds = [], []
    if limit.max is not None:
        parts.append(f"at most {limit.max:g}")
        bounds += [_against(values, limit.max, noise)] if values else []
    if limit.min is not None:
        parts.append(f"at least {limit.min:g}")
        bounds += [_against(values, limit.min, noise).inverted] if values else []
    if limit.max_increase is not None:
        parts.append(f"at most {limit.max_increase:+.1%}")
        bounds += [_increase(values, before, 1 + limit.max_increase, noise)] if values and before else []
    allowed = " and ".join(parts)
    if len(bounds) < len(parts):
        return limit.name, value, allowed, usual, None, 0.0, "FAIL", None  # what is limited must be there
    worst = max(bounds, key=lambda bound: (bound.broken, bound.excess))
    status = "FAIL" if worst.broken else "undecided" if worst.excess > 0 else "ok"
    more = worst.more if status == "undecided" else None
    return limit.name, value, allowed, usual, change, worst.noise, status, more


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
    def inverted(self) -> _Bound:
        """For a minimum: what is too little is beyond it."""
        excess, low, high = (1 / (1 + share) - 1 if share > -1 else inf for share in (self.excess, self.high, self.low))
        return _Bound(excess, low, high, self.noise, self.more)


def _against(values: Sequence[float], allowed: float, noise: float) -> _Bound:
    """Captures against a number."""
    middle = float(np.median(values))
    if allowed <= 0 or min(values) <= 0:  # no share of nothing
        share = inf if middle > allowed else -1.0 if middle < allowed else 0.0
        return _Bound(share, share, share, 0.0, None)
    excess = middle / allowed - 1
    if len(values) < ENOUGH:
        return _Bound(excess, (1 + excess) / (1 + noise) - 1, (1 + excess) * (1 + noise) - 1, noise, None)
    one = typical(values)
    width, size = one.width(), one.mean - log(allowed)
    more = more_runs(size, one.variance, [one.runs]) if one.variance else None
    return _Bound(excess, exp(size - width) - 1, exp(size + width) - 1, exp(width) - 1, more)


def _increase(values: Sequence[float], before: Sequence[float], allowed: float, noise: float) -> _Bound:
    """Captures against those of a baseline."""
    usual = float(np.median(before))
    if min(values) <= 0 or min(before) <= 0:
        return _against(values, usual * allowed, 0.0)
    ratio = ratio_of(before, values, noise)
    excess = float(np.median(values)) / usual / allowed - 1
    return _Bound(
        excess, ratio.low / allowed - 1, ratio.high / allowed - 1, ratio.high / ratio.value - 1, ratio.more_runs
    )


def _values(limit: Limit, captures: Sequence[Sequence[Explanation]]) -> list[float]:
    """A value per capture, of its rank furthest on the wrong side; none where a rank does not have what is limited."""
    worst = min if limit.max is None and limit.max_increase is None else max
    each = [[_value(limit, rank) for rank in ranks] for ranks in captures]
    if any(value is None for values in each for value in values):
        return []
    scale = 1000 if limit.metric.endswith("_us") else 1
    return [float(worst(value for value in values if value is not None)) / scale for values in each]


def _value(limit: Limit, e: Explanation) -> float | None:
    """As its analysis has it: times in nanoseconds."""
    column = limit.metric.replace("_us", "_ns")
    if len(e.work.lane) == 0:
        return None  # an empty capture keeps no limit
    if limit.kernel is not None or limit.unit is not None:
        table, key = (e.busy.units, "unit") if limit.kernel is None else (e.busy.kernels, "kernel")
        rows = table.filter(pl.col(key).cast(pl.String) == (limit.kernel or limit.unit))
        value: float | None = rows["share" if column == "busy" else column][0] if rows.height else None
        return value
    if limit.reason is not None:
        parts = e.bubbles.by_reason if limit.metric == "bubble_us" else e.path.by_part()
        merged = any(limit.reason in part.split("+") and ns for part, ns in parts.items() if part != limit.reason)
        return None if merged else parts.get(limit.reason, 0)  # a part of it cannot be told
    if column == "wall_ns":
        return e.work.wall
    number: float | None = getattr(e.scheduling if column in ("tasks", "overhead", "in_flight") else e.busy, column)
    return number


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
        ratio = ratio_of(usual[-1:], times, 0.0) if history.exact else ratio_of(usual, times)
        found.append((series.name, float(np.median(times)), float(np.median(usual)), ratio))
    if not found:
        raise NpuscopeError("nothing in the run is in the history")
    rows = []
    for (name, value, before, ratio), p in zip(found, holm([one[3].p for one in found]), strict=True):
        change = value / before - 1
        sure = ratio.has_interval and p <= 1 - CONFIDENCE and ratio.low > 1
        status = "ok" if change <= allowed else "FAIL" if sure else "undecided"
        if status == "ok" and name != WALL:
            continue
        label = "wall_us" if name == WALL else f"core_us of {name}"
        noise = ratio.high / ratio.value - 1 if ratio.has_interval else None
        more = ratio.more_runs if status == "undecided" else None
        rows.append((label, value / 1e3, f"at most {allowed:+.1%}", before / 1e3, change, noise, status, more))
    return Gate(LIMITS.table(rows).frame, (len(runs), count), len(found))
