"""The page of a trace, and of two side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from npuscope.analysis.comparison import Comparison
from npuscope.analysis.explanation import Explanation
from npuscope.analysis.ranks import Ranks
from npuscope.analysis.table import Table
from npuscope.report.scripted_page import scripted_page
from npuscope.report.timeline import timeline

# each after its imports
MODULES = ("format", "colors", "decode", "swimlane", "charts", "table", "sections", "theme", "main")
MOST_ROWS = 2000  # of a table on a page
Links = Sequence[tuple[str, str]]
Section = tuple[str, Sequence[str], Sequence[Table]]  # title, sentences, tables


def report_page(
    name: str, explained: Explanation, links: Links = (), told: str = "", first: Sequence[Section] = ()
) -> str:
    """The page of one trace; `told` comes first below the title, `first` before what every report has."""
    work = explained.work
    subtitle = told and f"{told}; "
    subtitle += f"{explained.trace.meta.format}, {len(work.lane):,} slices on {work.lanes.height:,} lanes"
    return _page(name, subtitle, _sides([name], [explained]), None, links, first)


def ranks_page(name: str, ranks: Ranks, links: Links = ()) -> str:
    """The page of several ranks: all in a table, and one at a time as the page of a trace."""
    subtitle = f"{ranks.trace.meta.format}, {ranks.trace.slices.height:,} slices of {len(ranks.parts)} {ranks.what}"
    together, waits = ranks.together(), ranks.waits.heart()
    told = {
        **ranks.diagnosis.as_dict(),
        "overview": ranks.overview,
        "waits_told": ranks.waits.title(),
        "what": ranks.what,
        "table": together.rows(),
        "waits": waits.rows(),
        "columns": _heads([together, waits]),
    }
    return _page(name, subtitle, _sides([part.name for part in ranks.parts], ranks.explained), None, links, ranks=told)


def compare_page(names: tuple[str, str], comparison: Comparison, first: Sequence[Section] = ()) -> str:
    """The page of two traces, left and right on one time axis; `first` comes before what every such page has."""
    sides = _sides(names, (comparison.a, comparison.b))
    told = {**comparison.as_dict(), "columns": _heads(comparison.tables().values())}
    return _page(f"{names[0]} against {names[1]}", "A left, B right", sides, told, (), first)


def _sides(names: Sequence[str], explained: Sequence[Explanation]) -> list[dict[str, object]]:
    """What the page knows of each trace; a kernel has one colour on all of them, by the first that has it."""
    kernels = dict.fromkeys(name for e in explained for name in e.busy.kernels["kernel"].to_list())
    ranks = {kernel: rank for rank, kernel in enumerate(kernels)}
    return [
        {"name": name, "report": _trimmed(e), "columns": _heads(_tables(e)), "timeline": timeline(e, ranks)}
        for name, e in zip(names, explained, strict=True)
    ]


def _tables(e: Explanation) -> Iterable[Table]:
    parts = (e, e.scheduling, e.path, e.fan_out, e.steps)
    return [*(table for part in parts for table in part.tables().values()), e.scheduling.facts()]


def _heads(tables: Iterable[Table]) -> dict[str, object]:
    """The columns of tables that the page's script fills, by their place in JSON."""
    return {table.columns.place: table.heads() for table in tables}


def _trimmed(e: Explanation) -> dict[str, object]:
    """The report without the rows that a page's tables would not show anyway; the page says how many there are."""
    path, fan_out = e.path.as_dict(), e.fan_out.as_dict()
    kernels = e.heart().rows()
    hidden = len(kernels) - MOST_ROWS
    left_out = [f"{hidden:,} kernels with the least core time are left out of the tables."] if hidden > 0 else []
    first = {name: table.rows()[:MOST_ROWS] for name, table in e.path.tables().items()}
    return {
        **e.as_dict(),
        "kernels": kernels[:MOST_ROWS],
        "critical_path": {**path, **first, "bound": None},
        "fan_out": {**fan_out, "kernels": e.fan_out.tables()["kernels"].rows()[:MOST_ROWS]},
        "notes": [*e.notes, *left_out],
    }


def _page(
    title: str,
    subtitle: str,
    sides: list[dict[str, object]],
    comparison: object,
    links: Links,
    first: Sequence[Section] = (),
    ranks: object = None,
) -> str:
    data = {
        "title": title, "subtitle": subtitle, "sides": sides, "comparison": comparison, "ranks": ranks,
        "links": list(links),
        "first": [
            {
                "title": head, "notes": list(told),
                "tables": [{"columns": one.heads(), "rows": one.rows()} for one in tables],
            }
            for head, told, tables in first
        ],
    }  # fmt: skip
    return scripted_page(MODULES, data, "`npuscope report --md` makes one without.")
