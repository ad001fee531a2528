"""The intervals that npuscope states, by the kind of what limits a run."""

from __future__ import annotations

from validation.evidence import Evidence
from validation.markdown import percent, table

from npuscope.base.interval import COVERAGE
from npuscope.time.bound import KIND_OF
from npuscope.time.uncertainty import QUANTITIES, against, learnt_as, time_estimate

SETS = {"wall": "walls", "kernel": "kernels", "any": "walls and kernels"}
CHANGE = 0.8  # a predicted ratio to show an interval of


def intervals_part(known: Evidence) -> list[str]:
    """Of each kind with enough commits to learn from, and of all kinds together."""
    rows = []
    for quantity in QUANTITIES:
        for bound in (*dict.fromkeys(map(learnt_as, KIND_OF.values())), ""):
            time = time_estimate(1.0, quantity, bound, known.misses)
            ratio = against(1.0, CHANGE, bound, bound, known.misses, quantity).ratio
            if bound and time.basis.bound is None and ratio.basis.bound is None:
                continue
            name = f"limited by {bound}" if bound else "any"
            told = [f"{one.low:.2f} to {one.high:.2f}" for one in (time, ratio)]
            basis = f"{time.basis.rows} of {time.basis.commits} commits, {SETS[time.basis.quantity]}"
            rows.append((quantity, name, *told, basis))
    head = f"{percent(COVERAGE)} interval"
    return table(("of a", "run", f"time, {head}", f"ratio {CHANGE}, {head}", "times learnt from"), rows)
