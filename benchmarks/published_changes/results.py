"""Rows run, their outcomes as predictions, and these as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from published_changes.measures import NoScope, quantity
from published_changes.rows import Row, Side
from published_changes.runs import Bench, Failed, Outcome
from published_changes.score import Prediction, scores


def run_rows(bench: Bench, rows: Sequence[Row], jobs: int) -> dict[Side, Outcome]:
    """Both sides of all rows, with a bar on stderr that says how far it is."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        sides = [side for row in rows for side in row.sides.values()]
        task = bar.add_task("sides simulated", total=len(set(sides)))
        return bench.run_all(sides, jobs, lambda: bar.advance(task))


def predictions_of(rows: Sequence[Row], outcomes: dict[Side, Outcome]) -> list[Prediction]:
    return [_predicted(row, outcomes[row.sides["before"]], outcomes[row.sides["after"]]) for row in rows]


def _predicted(row: Row, before: Outcome, after: Outcome) -> Prediction:
    for name, outcome in (("before", before), ("after", after)):
        if isinstance(outcome, Failed):
            return Prediction(row, reason=f"{name}: {outcome.reason}")
    assert not isinstance(before, Failed)
    assert not isinstance(after, Failed)
    try:
        times = quantity(row, "before", before), quantity(row, "after", after)
    except NoScope as error:
        return Prediction(row, reason=str(error))
    return Prediction(row, *times, bounds=(before.bound, after.bound))


def results_dict(version: str, predictions: Sequence[Prediction]) -> dict[str, object]:
    return {
        "simulator": version,
        "score": {name: one.as_dict() for name, one in scores(predictions).items()},
        "rows": [
            {
                "id": one.row.id,
                "commit": one.row.commit,
                "quantity": one.row.quantity_name,
                "scopes": one.row.scopes,
                "platform": one.row.platform,
                "measured_before": one.row.before,
                "measured_after": one.row.after,
                "measured_ratio": one.row.ratio,
                "predicted_before_ns": one.before,
                "predicted_after_ns": one.after,
                "predicted_ratio": one.ratio if one.ran else None,
                "bounds": one.bounds,
                "direction_right": one.right,
                "reason": one.reason,
            }
            for one in predictions
        ],
    }


def read_results(file: Path, rows: Sequence[Row]) -> dict[str, Prediction]:
    """Predictions of another version, as `--json` wrote them, of the rows at hand."""
    told = {one["id"]: one for one in json.loads(file.read_text())["rows"]}
    return {
        row.id: Prediction(
            row,
            one["predicted_before_ns"],
            one["predicted_after_ns"],
            one["reason"],
            tuple(one.get("bounds", ("", ""))),  # older files have none
        )
        for row in rows
        if (one := told.get(row.id)) is not None
    }
