"""Predicted forward passes: from a config, beside a measured one, and as times per token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from npuscope.table.columns import Table
from npuscope.table.formats import duration, many, percent, sentence_start, times
from npuscope.table.parts import Chart, Heading, In, Notes, Part, Rows, Say, Spec

if TYPE_CHECKING:  # who shows one of them need not be able to make the others
    from npuscope.forward.align.alignment import Alignment, SideScope
    from npuscope.forward.llm.layouts import Layouts
    from npuscope.forward.llm.prediction import PassPrediction
    from npuscope.forward.llm.tpot import Tpot
    from npuscope.trace.intervals import Ints

ROLES = 20
FAMILIES, KERNELS, LAYERS, GROUPS, PAIRS = 8, 6, 3, 5, 10
MOST_CALLS = 20_000  # calls of a ribbon; beyond it one per colour and thousandth of the axis
# predicted / measured, up to -> words; from too short to too long
COLOURS = (
    (0.5, "less than half"), (0.8, "half to 0.8"), (0.95, "0.8 to 0.95"), (1.05, "within 5%"), (1.25, "1.05 to 1.25"),
    (2.0, "1.25 to 2"), (np.inf, "more than double"),
)  # fmt: skip


def predict(
    prediction: PassPrediction, wide: bool = False, even: PassPrediction | None = None, others: Layouts | None = None
) -> Iterator[Part]:
    """`even`: the same where the router spreads tokens evenly, `others`: spread over other numbers of ranks."""
    tables = prediction.tables()
    yield Say(_predicted_headline(prediction), strong=True)
    if even is not None and even.run != prediction.run:
        more = duration(prediction.total_ns - even.total_ns)
        yield Say(f"Experts that are not evenly busy cost {more} of it: all ranks wait for the busiest.")
    if others is not None:
        yield Rows(others.tables()["layouts"], wide=wide)
    roles = tables["roles"]
    yield Rows(roles, roles.frame.height if wide else ROLES, wide=wide)
    if roles.frame.height > ROLES and not wide:
        yield Say("--wide shows all.", where=In.TEXT)
    for sentence in prediction.confidence():
        yield Say(sentence)
    yield Notes([f"{n}x {kernel} ({role}): {why}" for role, kernel, n, why in tables["unknown"].frame.iter_rows()])
    yield Heading("Assumptions:")
    yield Notes(prediction.assumptions())


def _predicted_headline(prediction: PassPrediction) -> str:
    run = prediction.run
    tokens = f"batch {run.batch}" if run.phase == "decode" else many(run.tokens, "token")
    spread = [f"{name} {ranks}" for name, ranks in (("tp", run.tp), ("dp", run.dp), ("ep", run.ep)) if ranks > 1]
    how = ", ".join([tokens, f"context {run.context:,}", *spread, *([run.quant] if run.quant != "none" else [])])
    time = f"{duration(prediction.total_ns)} in {many(len(prediction.kernels), 'kernel')}"
    sentence = f"{prediction.model.title} {run.phase}, {how} on {prediction.device.title}: {time}"
    sentence += f", without {prediction.unknown:,} whose time is not known" if prediction.unknown else ""
    return sentence if prediction.memory.fits else f"{sentence}. {prediction.memory.sentence()}"


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
        f"M6, as the tool that defines it counts: {times(m.values['m6'])} "
        f"({duration(m.m6_numerator_ns)} over {duration(m.m6_denominator_ns)})",
    ]
    errors = [
        f"{name.upper()} {percent(share)}" for name, share in m.values.items() if share is not None and name != "m6"
    ]
    return [*lines, f"{', '.join(errors)} (docs/howto/align.md says what M1 to M6 are)"] if errors else lines


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
        found.append(f"the alignment is not proven the best; it is worth at least {percent(a.of_best)} of it")
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


def _scope_notes(name: str, scope: SideScope) -> list[str]:
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


def ribbons_chart(a: Alignment) -> Spec:
    """Both sides; kind len(COLOURS) has no partner."""
    ratio = (a.pairs["predicted_ns"] / a.pairs["measured_ns"].replace(0, None)).fill_null(np.inf).to_numpy()
    colour = np.searchsorted(np.array([limit for limit, _ in COLOURS[:-1]]), ratio, side="left")
    longest = max(a.predicted.span_ns, a.measured.span_ns, 1)
    rows = []
    for side, calls, unmatched in (("predicted", a.times[0], a.extra), ("measured", a.times[1], a.missing)):
        kinds = np.full(calls.height, len(COLOURS))
        kinds[a.pairs[side].to_numpy()] = colour
        rows.append(_ribbon(calls, kinds, longest, side, _call_texts(a, side, unmatched, calls.height)))
    return {
        "chart": "ribbons",
        "title": "Both passes, matched calls coloured by predicted over measured",
        "rows": rows,
        "kinds": [*(words for _, words in COLOURS), "only on this side"],
        "span": longest,
        "note": "",
    }


def _ribbon(calls: pl.DataFrame, kinds: Ints, longest: int, side: str, texts: Sequence[str]) -> Spec:
    start = (calls["start"] - calls["start"].min()).to_numpy()
    drawn = np.arange(len(start))
    if len(start) > MOST_CALLS:
        column = start * 1000 // longest
        drawn = np.sort(np.unique(column * (len(COLOURS) + 1) + kinds, return_index=True)[1])
    return {
        "name": f"{side}, {duration(int(calls['dur'].sum()))}",
        "start": start[drawn].tolist(),
        "dur": calls["dur"].to_numpy()[drawn].tolist(),
        "kind": kinds[drawn].tolist(),
        "text": [texts[place] for place in drawn.tolist()],
    }


def _call_texts(a: Alignment, side: str, unmatched: pl.DataFrame, calls: int) -> list[str]:
    """What is said of each call."""
    texts = [""] * calls
    for place, kernel, ours, theirs in a.pairs.select(side, "kernel", "predicted_ns", "measured_ns").iter_rows():
        texts[place] = f"{kernel}: predicted {duration(ours)}, measured {duration(theirs)}"
    for place, kernel, dur in unmatched.select("index", "kernel", f"{side}_ns").iter_rows():
        texts[place] = f"{kernel}: {duration(dur)}, only here"
    return texts


def tpot(result: Tpot, measured: Table | None = None, wide: bool = False) -> Iterator[Part]:
    tables = result.tables()
    yield Heading(result.title())
    yield Say(result.verdict(), strong=True)
    if measured is not None:
        yield Heading("Predicted beside measured")
        yield Rows(measured, measured.frame.height, wide=wide)
    yield Rows(result.basis().facts(), text=100)
    yield Heading(
        "by area: tasks per layer, times of the last step"
        if result.layers is not None
        else "by area, of the last step: the program takes no --layers"
    )
    yield Rows(tables["group_table"])
    yield Heading(_interpolated(result))
    yield Rows(tables["simulated"], wide=wide)
    yield Notes(result.notes, "note: ")


def _interpolated(result: Tpot) -> str:
    count, of = len(result.simulated), result.decoding.tokens
    if count == of:
        return "The step was simulated." if of == 1 else f"All {of} steps were simulated."
    return f"{count} of {of} steps were simulated (a row's length counts the new token); linear between them."
