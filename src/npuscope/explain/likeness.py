"""What makes two traces not like for like: said before anybody quotes a ratio."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl

from npuscope.explain.explanation import Explanation
from npuscope.explain.matching import Match
from npuscope.explain.summary import NOT_TOLD, TYPES
from npuscope.table.formats import short
from npuscope.trace.tensors import source_column

MOST = 5  # kernels named per difference


def differences(a: Explanation, b: Explanation, matches: Sequence[Match]) -> Iterator[str]:
    """Sentences, the gravest first."""
    yield from _captures(a, b)
    yield from _cores(a, b)
    for column, what in (("input_shapes", "shapes"), ("input_dtypes", "data types")):
        yield from _tensors(a, b, matches, column, what)
    yield from _counts(a, b, matches)


def _captures(a: Explanation, b: Explanation) -> Iterator[str]:
    metas = a.trace.meta, b.trace.meta
    for what, values in (
        ("format", [m.format for m in metas]),
        ("device", [m.device for m in metas]),
        ("profiler level", [m.notes.get("level") for m in metas]),
        ("schema of the kernel table", ["PMU" if _has_pmu(e) else "no PMU" for e in (a, b)]),
    ):
        if values[0] != values[1]:
            yield f"{what}: {values[0] or 'not recorded'} against {values[1] or 'not recorded'}"
    by_type = [_named_by_type(e) for e in (a, b)]
    if by_type[0] != by_type[1]:
        yield "kernels have their operator types in one capture and only names in the other: few of them will match"
    if a.work.spans_dispatch != b.work.spans_dispatch:
        yield "a slice is dispatch to retired in one (TraCR) and start to end in the other: on-core means two things"
    if a.path.kind != b.path.kind:
        yield "only one capture tells dependencies: the waterfall follows covers of the timelines, not critical paths"
    told = [e.scheduling.stamped > 0 for e in (a, b)]
    if told[0] != told[1]:
        yield "only one capture has dispatch and finish times: waits are split more finely there"
    steps = [e.steps.table.height if e.steps.source == "column" else 1 for e in (a, b)]
    if steps[0] != steps[1]:
        yield f"steps: {steps[0]} against {steps[1]}; totals cover all of them"
    cut = ["window_ns" in m.notes for m in metas]
    if cut[0] != cut[1]:
        yield "only one trace is cut to a window"


def _named_by_type(explained: Explanation) -> bool:
    names = [name for name in TYPES if name in explained.trace.slices.columns]
    told = explained.work.told(*names)
    return any(not told[name].is_in(NOT_TOLD).all() for name in names)


def _has_pmu(explained: Explanation) -> bool:
    return "aicore_time(us)" in explained.trace.slices.columns


def _cores(a: Explanation, b: Explanation) -> Iterator[str]:
    counts = [dict(e.busy.units.select("unit", "lanes").iter_rows()) for e in (a, b)]
    for unit in dict.fromkeys([*counts[0], *counts[1]]):
        if counts[0].get(unit, 0) != counts[1].get(unit, 0):
            yield f"{unit} lanes: {counts[0].get(unit, 0)} against {counts[1].get(unit, 0)}"


def _tensors(a: Explanation, b: Explanation, matches: Sequence[Match], column: str, what: str) -> Iterator[str]:
    """Matched kernels whose tensors differ; only where both captures tell them."""
    sides = []
    for e in (a, b):
        name = source_column(e.trace.slices, column)
        if name is None:
            return
        rows = e.work.told(name).select("kernel", pl.col(name).alias("what")).unique()
        sides.append({k: set(v) for k, v in rows.group_by("kernel").agg("what").iter_rows()})
    odd = [m for m in matches if m.in_a and m.in_b and _union(sides[0], m.in_a) != _union(sides[1], m.in_b)]
    if odd:
        yield f"{what} differ in {len(odd)} matched kernels: {_listed([short(m.kernel, 40) for m in odd])}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more


def _union(sets: dict[str, set[str]], names: tuple[str, ...]) -> set[str]:
    return set().union(*(sets.get(name, set()) for name in names))


def _counts(a: Explanation, b: Explanation, matches: Sequence[Match]) -> Iterator[str]:
    for rule, what in (("gone", "only in A"), ("new", "only in B")):
        names = [short(m.kernel, 40) for m in matches if m.rule == rule]
        if names:
            yield f"{len(names)} kernel{'s' * (len(names) > 1)} {what}: {_listed(names)}"
    counts = [dict(e.busy.kernels.select("kernel", "count").iter_rows()) for e in (a, b)]
    both = [(m.kernel, sum(counts[0][n] for n in m.in_a), sum(counts[1][n] for n in m.in_b)) for m in matches]
    changed = [f"{short(name, 40)} {x:,} → {y:,}" for name, x, y in both if x and y and x != y]
    if changed:
        several = "kernels run" if len(changed) > 1 else "kernel runs"
        yield f"{len(changed)} {several} more or less often: {_listed(changed)}"
