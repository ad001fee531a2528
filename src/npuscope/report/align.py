"""An alignment as a report: the verdict first, then families, worst kernels, what has no partner."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl

from npuscope.forward.align.alignment import Alignment, Scope
from npuscope.report.charts.ribbons import ribbons_chart
from npuscope.table.formats import duration, many, percent, sentence_start, times
from npuscope.table.parts import Chart, Heading, In, Notes, Part, Rows, Say

FAMILIES, KERNELS, LAYERS, GROUPS, PAIRS = 8, 6, 3, 5, 10


def align(names: tuple[str, str], a: Alignment, wide: bool = False) -> Iterator[Part]:
    """A prediction beside a measured pass."""
    tables = a.tables()
    yield Heading(f"{names[0]} against {names[1]}", 1, In.POSTED)
    yield Say(sentence_start(a.verdict()), strong=True)
    yield Say(f"{names[0]} against {names[1]}", where=In.TEXT)
    yield Chart(ribbons_chart(a))
    yield Notes(_metrics(a))
    yield Heading("Families", where=In.POSTED)
    yield Rows(tables["family_table"], FAMILIES, wide=wide)
    yield Heading("Errors that cancel", where=In.POSTED)
    if a.cancelling.pairs:
        yield Rows(a.cancelling.table(), markdown=PAIRS, where=In.POSTED)
    else:
        yield Say("None: all families err to the same side.", where=In.POSTED)
    worst = tables["by_shape"].frame.filter(pl.col("absolute_ns") > 0)
    if worst.height:
        yield Heading("Kernels with the largest errors, calls of one shape together (by absolute errors, summed)")
        yield Rows(replace(tables["by_shape"], frame=worst), KERNELS, 2 * KERNELS, wide=wide)
    if a.communication.height:
        yield Heading("Collectives", where=In.POSTED)
        yield Rows(tables["communication"], where=In.POSTED)
    if a.layers.height > 1:
        yield Heading(f"Layers with the largest errors ({a.layer_source})")
        by_error = a.layers.sort(pl.col("error_ns").abs(), descending=True)
        yield Rows(replace(tables["layers"], frame=by_error), LAYERS, 4 * LAYERS, wide=wide, legend=False)
    for what, name, found in (("Missing from", "missing", a.missing), ("Extra in", "extra", a.extra)):
        if found.height:
            yield Heading(f"{what} the prediction: {many(found.height, 'call')}")
            yield Rows(tables[f"{name}_by_shape"], GROUPS, 4 * GROUPS)
    yield Heading("Scope and notes", where=In.POSTED)
    yield Notes(_notes(a), "note: ")


def _metrics(a: Alignment) -> list[str]:
    """Predicted over measured, and the metrics M1 to M6 where they can be computed."""
    m = a.metrics
    window = "both from the first to the last call they share" if a.ordered else "all of both sides"
    lines = [
        f"predicted over measured, nothing counted twice: {times(a.m6_honest)} ({duration(a.predicted.window_ns)} over "
        f"{duration(a.measured.window_ns)} with the device busy; {window})",
        f"M6, as the tool that defines it counts: {times(m.m6)} "
        f"({duration(m.m6_numerator_ns)} over {duration(m.m6_denominator_ns)})",
    ]
    told = [f"{name.upper()} {percent(getattr(m, name))}" for name in ("m1", "m2", "m3", "m4", "m5")
            if getattr(m, name) is not None]  # fmt: skip
    return [*lines, f"{', '.join(told)} (docs/howto/align.md says what M1 to M6 are)"] if told else lines


def _notes(a: Alignment) -> list[str]:
    """What each side leaves out, and how far the alignment can be trusted."""
    found = [note for name, scope in (("prediction", a.predicted), ("measured pass", a.measured))
             for note in _scope_notes(name, scope)]  # fmt: skip
    moved = int(a.pairs["moved"].sum())
    if moved:
        found.append(f"{moved:,} calls are matched out of order: they run elsewhere in the same neighbourhood")
    if not a.ordered:
        found.append(
            "a side has counts and no order: calls are matched by kernel and shapes, and nothing is said of order"
        )
    if a.of_best < 1:
        found.append(f"the alignment is not proven the best; it is worth at least {a.of_best:.1%} of it")
    unknown = int((a.pairs["source"] == "UNKNOWN").sum()) + int((a.extra["source"] == "UNKNOWN").sum())
    if unknown:
        found.append(f"{unknown:,} predicted calls have no known time and count as nothing")
    found += [
        f"{ours} ({calls:,} calls) may be {theirs} under another name: --map '{ours}={theirs}'"
        for ours, theirs, calls in a.renamed[:3]
    ]
    reasons = dict(a.metrics.reasons)
    if "m1" in reasons:  # then all five for one reason
        found.append(f"M1 to M5: {reasons['m1']}")
        reasons = {"m6": reasons["m6"]}
    return found + [f"{name.upper()}: {reason}" for name, reason in reasons.items()]


def _scope_notes(name: str, scope: Scope) -> list[str]:
    found = []
    for side in ("before", "after"):
        calls, ns = getattr(scope, side)
        if ns:
            where = f"{'before the first' if side == 'before' else 'after the last'} shared call"
            counted = f"{many(calls, 'call')}, {duration(ns)}"
            found.append(f"the {name} has {counted}, {where}: not in predicted over measured")
    found += [
        f"the {name} has {many(rows, 'row')}, {duration(ns)}, left out: {reason}"
        for reason, (rows, ns) in scope.left_out.items()
    ]
    return found
