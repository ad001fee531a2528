"""The budget of a performance gate: limits on metrics of a run, from a TOML file."""

from __future__ import annotations

from math import isfinite
from pathlib import Path

import msgspec

from npuscope.base.errors import BadInput
from npuscope.base.toml_file import read_toml
from npuscope.explain.waits import PARTS

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
