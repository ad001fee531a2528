"""Times per token over commits: a line per model and settings."""

from __future__ import annotations

from collections.abc import Sequence

from npuscope.forward.llm.tpot_history import Entry, commit_told, interval_of, ms_of, series
from npuscope.table.formats import interval
from npuscope.table.parts import Spec, axis


def likely(entry: Entry) -> str:
    """The interval of an entry that has one."""
    found = interval_of(entry)
    return "" if found is None else f" (80%: {interval(*found)})"


def history_chart(entries: Sequence[Entry]) -> Spec:
    found = []
    for told, run in series(entries).items():
        points = []
        for place, entry in run:
            low, high = interval_of(entry) or (None, None)
            about = [f"{ms_of(entry):,.4g} ms per token{likely(entry)}", str(entry.get("date", "")), told]
            points.append(
                {"x": place, "y": ms_of(entry), "low": low, "high": high, "name": commit_told(entry), "told": about}
            )
        found.append({"name": told, "points": points, "joined": True})
    return {
        "chart": "lines",
        "title": "Time per token over commits",
        "x": {"title": "commit", "labels": [commit_told(entry) for entry in entries]},
        "y": axis("ms per token", "number"),
        "series": found,
        "note": "",
    }
