"""The page of a trace, and of two side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuscope.analysis.comparison import Comparison
from npuscope.analysis.explanation import Explanation
from npuscope.report.scripted_page import scripted_page
from npuscope.report.timeline import timeline

# each after its imports
MODULES = ("format", "colors", "decode", "swimlane", "charts", "table", "sections", "theme", "main")
MOST_ROWS = 2000  # of a table on a page
Links = Sequence[tuple[str, str]]


def report_page(name: str, explained: Explanation, links: Links = ()) -> str:
    """The page of one trace."""
    work = explained.work
    subtitle = f"{explained.trace.meta.format}, {len(work.lane):,} slices on {work.lanes.height:,} lanes"
    return _page(name, subtitle, _sides([name], [explained]), None, links)


def compare_page(names: tuple[str, str], comparison: Comparison) -> str:
    """The page of two traces, left and right on one time axis."""
    sides = _sides(names, (comparison.a, comparison.b))
    return _page(f"{names[0]} against {names[1]}", "A left, B right", sides, comparison.as_dict(), ())


def _sides(names: Sequence[str], explained: Sequence[Explanation]) -> list[dict[str, Any]]:
    """What the page knows of each trace; a kernel has one colour on all of them, by the first that has it."""
    kernels = dict.fromkeys(name for e in explained for name in e.busy.kernels["kernel"].to_list())
    ranks = {kernel: rank for rank, kernel in enumerate(kernels)}
    return [
        {"name": name, "report": _trimmed(e.as_dict()), "timeline": timeline(e, ranks)}
        for name, e in zip(names, explained, strict=True)
    ]


def _trimmed(report: dict[str, Any]) -> dict[str, Any]:
    """The report without the rows that a page's tables would not show anyway; the page says how many there are."""
    path, fan_out = report["critical_path"], report["fan_out"]
    hidden = len(report["kernels"]) - MOST_ROWS
    notes = [*report["notes"], f"{hidden:,} kernels with the least core time are left out of the tables."]
    return {
        **report,
        "kernels": report["kernels"][:MOST_ROWS],
        "critical_path": {
            **path,
            "kernels": path["kernels"][:MOST_ROWS],
            "bound": {"reasons": path["bound"]["reasons"]},
        },
        "fan_out": {**fan_out, "kernels": fan_out["kernels"][:MOST_ROWS]},
        "notes": notes if hidden > 0 else report["notes"],
    }


def _page(title: str, subtitle: str, sides: list[dict[str, Any]], comparison: Any, links: Links) -> str:
    data = {"title": title, "subtitle": subtitle, "sides": sides, "comparison": comparison, "links": list(links)}
    return scripted_page(MODULES, data, "`npuscope report --md` makes one without.")
