"""What `run --trace-values` shows: where values first went wrong, tensor by tensor, and pictures of the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import COUNT, NUMBER, TEXT, many
from npuscope.table.parts import Chart, Heading, In, Part, Rows, Say, Spec, axis

if TYPE_CHECKING:
    from npuscope.tile.golden.traced import TracedTensor, ValueDifference, ValueTrace
    from npuscope.tile.run.value_watch import ValueEvent

EVENTS = 8
VALUES = Columns(
    "run.values",
    "Named tensors in the order in which the program wrote them.",
    Column("tensor", TEXT, "its name"),
    Column("shape", TEXT, "its shape"),
    Column("dtype", TEXT, "its type", title="type"),
    Column("kernel", TEXT, "the kernel that wrote it last", title="written by", absent="nobody"),
    Column("least", NUMBER, "the least finite value"),
    Column("most", NUMBER, "the largest finite value"),
    Column("nan", COUNT, "elements that are NaN", title="NaN", optional=True),
    Column("infinite", COUNT, "elements that are infinite", optional=True),
    Column("differing", COUNT, "elements that differ: bit by bit, or outside the tolerance of the golden"),
    Column("largest", NUMBER, "the largest |difference|", title="largest difference"),
    Column("relative", NUMBER, "|difference| over |other|, as vectors", explained=True),
)


def values_table(trace: ValueTrace) -> Table:
    rows = []
    for one in trace.tensors:
        apart = one.apart
        rows.append(
            (
                one.name, str(list(one.shape)), one.dtype, one.kernel or None, one.least, one.most, one.nan or None,
                one.infinite or None, (0 if apart is None else apart.differing) if one.compared else None,
                None if apart is None else apart.largest, None if apart is None else apart.relative,
            )
        )  # fmt: skip
    return VALUES.table(rows)


def traced(file: str, traces: Sequence[ValueTrace]) -> Iterator[Part]:
    """Each program of a file: what went wrong first, the tensors, then pictures of the first that differs."""
    yield Heading(f"Values of {Path(file).name}", 1)
    for trace in traces:
        if len(traces) > 1:
            yield Heading(trace.program, 2)
        yield Say(trace.verdict, strong=True, kind="error" if trace.first is not None else "")
        if trace.first is not None and trace.first.apart is not None:
            yield Say(trace.first.text())
        for event in trace.events[:EVENTS]:
            yield Say(_event(event))
        if len(trace.events) > EVENTS:
            yield Say(f"… and {many(len(trace.events) - EVENTS, 'more')}; --json has all", where=In.TEXT)
        yield Rows(values_table(trace))
        for where, names in (("here", trace.only_here), (f"in {trace.against}", trace.only_there)):
            if names:
                yield Say(f"only {where}: {', '.join(names)}")
        for one in trace.tensors:
            if one.reason:
                yield Say(f"{one.name} was not compared: {one.reason}")
        if trace.first is not None and trace.first.apart is not None:
            yield Chart(_sizes(trace.first, trace.first.apart))
            for chart in _places(trace.first, trace.first.apart):
                yield Chart(chart)


def _event(event: ValueEvent) -> str:
    place = f"{event.site.file}, line {event.site.line}"
    op = f"pl.{event.op} " if event.op else ""
    kernel = f" in {event.kernel} (task {event.task})" if event.kernel else ""
    many_elements = f", {event.elements:,} elements, first {list(event.index)}" if event.elements else ""
    times = f", {event.times} times" if event.times > 1 else ""
    return f"{event.kind}: {place}: {op}{event.about}{kernel}{many_elements}{times}"


def _sizes(tensor: TracedTensor, apart: ValueDifference) -> Spec | None:
    if not apart.by_decade:
        return None
    columns = [
        {"name": f"1e{decade}", "values": [count, 0], "text": [f"{count:,} elements"], "marked": False}
        for decade, count in apart.by_decade
    ]
    return {
        "chart": "columns",
        "title": f"How far the elements of {tensor.name} are apart",
        "y": axis("elements", "number"),
        "groups": ["elements", ""],
        "columns": columns,
        "note": "A column has the differences from its number up to ten times that.",
    }


def _places(tensor: TracedTensor, apart: ValueDifference) -> Iterator[Spec]:
    """Where they lie: the largest difference along rows, then along columns."""
    for title, line in zip(("rows", "columns"), apart.along, strict=True):
        if len(line) < 2:
            continue
        points = [
            {"x": n, "y": value, "name": f"{title} {n}", "text": [f"{value:.3g}"]} for n, value in enumerate(line)
        ]
        yield {
            "chart": "lines",
            "title": f"Where {tensor.name} differs, along its {title}",
            "x": {"title": f"{title}, in {len(line)} pieces", "labels": [str(n) for n in range(len(line))]},
            "y": axis("largest difference", "number"),
            "series": [{"name": "largest difference", "points": points, "joined": True}],
            "note": "",
        }
