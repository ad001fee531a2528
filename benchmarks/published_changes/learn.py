"""The misses of predicted changes, kept for npuscope's intervals, and how well those cover left-out commits."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from npuscope.base.interval import COVERAGE
from npuscope.time.uncertainty import (
    FILE,
    QUANTITIES,
    Covered,
    Miss,
    Misses,
    kernel_quantity,
    left_out,
    ratio_inside,
    read_misses,
    time_inside,
    write_misses,
)
from published_changes.rows import BadRows, Measured, Side, scopes_of, set_aside
from published_changes.runs import Outcome
from published_changes.score import Prediction

WALLS = ("wall", "corespan", "orch")  # of a whole run


def learn(
    predictions: Sequence[Prediction], outcomes: Mapping[Side, Outcome], head: str, target: Path = FILE
) -> Misses:
    """Writes the misses of all rows that ran; what could not be read back is refused and not written."""
    told = io.StringIO()
    write_misses([miss_of(one, outcomes) for one in predictions if one.ran], told, head)
    found = read_misses(io.StringIO(told.getvalue()), target)
    target.write_text(told.getvalue(), encoding="utf-8")
    return found


def left_out_predictions(predictions: Sequence[Prediction], file: Path) -> list[Prediction]:
    """Each row as constants that were fitted without its commit predict it (benchmarks/fit.py --crossvalidate).

    No constant was fitted with what is set aside: it is taken as it is predicted.
    """
    told = {one["id"]: one for one in json.loads(file.read_text())["rows"]}
    found = []
    for one in predictions:
        if set_aside(one.row.commit):
            found.append(one)
            continue
        other = told.get(one.row.id)
        if other is None or not one.ran:
            raise BadRows(f"{file}: has no {one.row.id}, or it did not run: crossvalidate anew")
        before = other.get("predicted_before_ns", one.before)
        found.append(Prediction(one.row, before, before * other["predicted_ratio"]))
    return found


def miss_of(one: Prediction, outcomes: Mapping[Side, Outcome]) -> Miss:
    row = one.row
    before, after = (outcomes[row.sides[which]] for which in ("before", "after"))
    assert isinstance(before, Measured)
    assert isinstance(after, Measured)
    quantity = "wall"
    if row.quantity not in WALLS:
        quantity = kernel_quantity({one.unit for one in scopes_of(row, "before", before)})
    assert one.before is not None
    assert one.after is not None
    times: list[float | None] = [None, None]
    if row.nanoseconds is not None:
        pairs = ((row.before, one.before), (row.after, one.after))
        times = [math.log(measured * row.nanoseconds / predicted) for measured, predicted in pairs]
    return Miss(row.commit[:10], quantity, before.bound, after.bound, one.change, row.change - one.change, *times)


def coverage_lines(misses: Misses) -> list[str]:
    """What is known of each kind, and leave-one-commit-out coverage."""
    kinds = Counter((row.quantity, row.kind) for row in misses.rows)
    least, growth = misses.scale
    lines = [
        f"Learnt from {len(misses.rows)} rows: " + ", ".join(f"{q} {k} {n}" for (q, k), n in sorted(kinds.items())),
        f"A ratio is typically missed by {least:.3f} + {growth:.2f} · |ln predicted ratio|",
        f"Coverage of the {COVERAGE:.0%} interval on left-out commits (a commit weighs one)",
    ]
    for name, inside in (("ratio", ratio_inside), ("time", time_inside)):
        lines.append(_line(name, "all", left_out(misses, inside)))
        for quantity in QUANTITIES:
            lines.append(_line(name, quantity, left_out(misses, inside, lambda row, q=quantity: row.quantity == q)))  # type: ignore[misc]
        large = left_out(misses, inside, lambda row: abs(row.change) > 0.15)
        lines.append(_line(name, "predicted change over 15 %", large))
    return lines


def _line(what: str, which: str, found: Covered) -> str:
    return f"  {what:6}{which:28}{found.rows:4} of {found.commits:3} commits  {found.share:.0%}"
