"""What makes two traces not like for like, in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import polars as pl

from npuscope.explain.explanation import Explanation
from npuscope.explain.matching import Match
from npuscope.explain.waterfall import has_launches
from npuscope.explain.work import NOT_RECORDED, TYPES
from npuscope.table.formats import (
    short,
)
from npuscope.trace.names import source_column

MOST = 5  # kernels named per difference


def _tiles(a: Mapping[str, Mapping[str, str]], b: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Tile shapes that both programs set, and set differently."""
    for name in (name for name in a if name in b):
        for kind in (kind for kind in a[name] if b[name].get(kind, a[name][kind]) != a[name][kind]):
            yield f"{kind} tile of `{name}`: {a[name][kind]} against {b[name][kind]}"


def differences(a: Explanation, b: Explanation, matches: Sequence[Match]) -> Iterator[str]:
    """What makes two traces not like for like, in sentences, the gravest first: said before anybody quotes a ratio."""
    both = (a, b)
    metas = [e.trace.meta for e in both]
    for what, values in (
        ("format", [m.format for m in metas]),
        ("device", [m.device for m in metas]),
        ("profiler level", [m.notes.get("level") for m in metas]),
        (
            "schema of the kernel table",
            ["PMU" if "aicore_time(us)" in e.trace.slices.columns else "no PMU" for e in both],
        ),
    ):
        if values[0] != values[1]:
            yield f"{what}: {values[0] or 'not recorded'} against {values[1] or 'not recorded'}"
    yield from _tiles(*(meta.notes.get("tiles", {}) for meta in metas))
    for odd, sentence in (
        (_named_by_type, "kernels have their operator types in one capture and only names in the other: few of them "
         "will match"),
        (lambda e: e.work.spans_dispatch, "a slice is dispatch to retired in one (TraCR) and start to end in the "
         "other: on-core means two things"),
        (lambda e: e.path.kind, "only one capture tells dependencies: the waterfall follows the mean core, or covers "
         "of the timelines, not critical paths"),
        (_launched_on_streams, "only one capture says when work was launched: pauses are told apart by their lengths"),
        (lambda e: e.scheduling.stamped > 0, "only one capture has dispatch and finish times: waits are split more "
         "finely there"),
    ):  # fmt: skip
        if odd(a) != odd(b):
            yield sentence
    steps = [e.steps.table.height if e.steps.source in ("column", "passes") else 1 for e in both]
    if steps[0] != steps[1]:
        yield f"steps: {steps[0]} against {steps[1]}; totals cover all of them"
    if ("window_ns" in metas[0].notes) != ("window_ns" in metas[1].notes):
        yield "only one trace is cut to a window"
    lanes = [dict(e.busy.units.select("unit", "lanes").iter_rows()) for e in both]
    for unit in dict.fromkeys([*lanes[0], *lanes[1]]):
        if lanes[0].get(unit, 0) != lanes[1].get(unit, 0):
            yield f"{unit} lanes: {lanes[0].get(unit, 0)} against {lanes[1].get(unit, 0)}"
    for column, what in (("input_shapes", "shapes"), ("input_dtypes", "data types")):
        names = [short(m.kernel, 40) for m in _other_tensors(a, b, matches, column)]
        if names:
            yield f"{what} differ in {len(names)} matched kernels: {_listed(names)}"
    for rule, what in (("gone", "only in A"), ("new", "only in B")):
        names = [short(m.kernel, 40) for m in matches if m.rule == rule]
        if names:
            yield f"{len(names)} kernel{'s' * (len(names) > 1)} {what}: {_listed(names)}"
    counts = [dict(e.busy.kernels.select("kernel", "count").iter_rows()) for e in both]
    pairs = [(m.kernel, sum(counts[0][n] for n in m.in_a), sum(counts[1][n] for n in m.in_b)) for m in matches]
    changed = [f"{short(name, 40)} {x:,} → {y:,}" for name, x, y in pairs if x and y and x != y]
    if changed:
        several = "kernels run" if len(changed) > 1 else "kernel runs"
        yield f"{len(changed)} {several} more or less often: {_listed(changed)}"


def _launched_on_streams(explained: Explanation) -> bool:
    return not explained.work.on_cores and has_launches(explained)


def _named_by_type(explained: Explanation) -> bool:
    names = [name for name in TYPES if name in explained.trace.slices.columns]
    table = explained.work.with_columns(*names)
    return any(not table[name].is_in(NOT_RECORDED).all() for name in names)


def _other_tensors(a: Explanation, b: Explanation, matches: Sequence[Match], column: str) -> list[Match]:
    """Matched kernels whose tensors differ; only where both captures tell them."""
    sides = []
    for e in (a, b):
        name = source_column(e.trace.slices, column)
        if name is None:
            return []
        rows = e.work.with_columns(name).select("kernel", pl.col(name).alias("what")).unique()
        sides.append({kernel: set(what) for kernel, what in rows.group_by("kernel").agg("what").iter_rows()})

    def of(side: dict[str, set[str]], names: tuple[str, ...]) -> set[str]:
        return set().union(*(side.get(name, set()) for name in names))

    return [m for m in matches if m.in_a and m.in_b and of(sides[0], m.in_a) != of(sides[1], m.in_b)]


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST} more" if len(names) > MOST else ""
    return ", ".join(names[:MOST]) + more
