"""An alignment as plain text and as Markdown: the verdict first, then families, worst kernels, what has no partner."""

from __future__ import annotations

import polars as pl

from npuscope.analysis.table import frame_lines, microseconds, percent, printable
from npuscope.forward.align.alignment import Alignment, Scope
from npuscope.forward.align.errors import by_shape
from npuscope.report.markdown import bullets, document, table, text

FAMILIES, KERNELS, LAYERS, GROUPS = 12, 8, 5, 8


def align_text(names: tuple[str, str], a: Alignment) -> str:
    """What `npuscope align` prints."""
    lines = [f"{printable(names[0])} against {printable(names[1])}", printable(a.verdict()), ""]
    lines += [f"  {line}" for line in metric_lines(a)]
    lines += ["", *frame_lines(_families(a), FAMILIES)]
    worst = _worst(a)
    if worst.height:
        lines += [
            "",
            "kernels with the largest errors, calls of one shape together (by absolute errors, summed)",
            *frame_lines(worst, KERNELS),
        ]
    if a.layers.height > 1:
        lines += ["", f"layers with the largest errors ({a.layer_source})", *frame_lines(_layers(a), LAYERS)]
    for what, found, ns in (("missing from the prediction", a.missing, "measured_ns"),
                            ("extra in the prediction", a.extra, "predicted_ns")):  # fmt: skip
        if found.height:
            lines += ["", f"{what}: {found.height:,} calls", *frame_lines(_grouped(found, ns), GROUPS)]
    lines += ["", *(f"  note: {printable(note)}" for note in notes(a))]
    return "\n".join(lines).rstrip()


def align_markdown(names: tuple[str, str], a: Alignment, command: str) -> str:
    """An alignment as a report to post."""
    ours, theirs = (text(name) for name in names)
    columns = {"family": "family", "calls": "calls", "missing": "missing", "extra": "extra",
               "predicted_ns": "predicted µs", "measured_ns": "measured µs", "error_ns": "error µs", "error": "error",
               "cancelled_ns": "cancels inside µs"}  # fmt: skip
    worst = {"kernel": "kernel", "shapes": "shapes", "calls": "calls", "predicted_ns": "predicted µs",
             "measured_ns": "measured µs", "error_ns": "error µs", "error": "error"}  # fmt: skip
    parts = [
        f"# {ours} against {theirs}",
        f"**{text(a.verdict())}**",
        bullets(text(line) for line in metric_lines(a)),
        "## Families",
        table(_families(a), columns),
        "## Errors that cancel",
        _cancelling(a) or "None: all families err to the same side.",
        "## Kernels with the largest errors",
        table(_worst(a).head(2 * KERNELS), worst),
        *_comm_markdown(a),
    ]
    if a.layers.height > 1:
        shown = {"layer": "layer", "matched": "matched", "missing": "missing", "extra": "extra",
                 "predicted_ns": "predicted µs", "measured_ns": "measured µs", "error_ns": "error µs",
                 "error": "error"}  # fmt: skip
        parts += ["## Layers", f"From {text(a.layer_source)}.", table(_layers(a).head(4 * LAYERS), shown)]
    for what, found, ns in (("Missing from the prediction", a.missing, "measured_ns"),
                            ("Extra in the prediction", a.extra, "predicted_ns")):  # fmt: skip
        if found.height:
            grouped = {"kernel": "kernel", "shapes": "shapes", "calls": "calls", ns: "µs"}
            parts += [f"## {what}", table(_grouped(found, ns).head(4 * GROUPS), grouped)]
    parts += ["## Scope and notes", bullets(text(note) for note in notes(a))]
    return document(parts, command)


def metric_lines(a: Alignment) -> list[str]:
    """M6 both ways, M1 to M5 where they are told."""
    m = a.metrics
    honest = "–" if a.m6_honest is None else f"{a.m6_honest:.4f}"
    m6 = "–" if m.m6 is None else f"{m.m6:.4f}"
    window = "both from the first to the last call they share" if a.ordered else "all of both sides"
    lines = [
        f"honest M6 {honest}: union of predicted time {microseconds(a.predicted.window_ns)} µs over union of measured "
        f"device time {microseconds(a.measured.window_ns)} µs, {window}",
        f"M6 as published {m6}: {microseconds(m.m6_numerator_ns)} µs over {microseconds(m.m6_denominator_ns)} µs",
    ]
    told = [f"{name.upper()} {percent(getattr(m, name))}" for name in ("m1", "m2", "m3", "m4", "m5")
            if getattr(m, name) is not None]  # fmt: skip
    return [*lines, ", ".join(told)] if told else lines


def notes(a: Alignment) -> list[str]:
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
            where = "before the first" if side == "before" else "after the last"
            found.append(
                f"the {name} has {calls:,} calls, {microseconds(ns)} µs, {where} shared call: not in honest M6"
            )
    found += [
        f"the {name} has {rows:,} rows, {microseconds(ns)} µs, left out: {reason}"
        for reason, (rows, ns) in scope.left_out.items()
    ]
    return found


def _signed(column: str) -> pl.Expr:
    return pl.col(column).map_elements(lambda share: f"{share:+.1%}", return_dtype=pl.String).fill_null("–")


def _families(a: Alignment) -> pl.DataFrame:
    told = a.families.with_columns(_signed("error"), _signed("error_stable"), calls=pl.col("matched"))
    columns = [
        "family",
        "calls",
        "missing",
        "extra",
        "predicted_ns",
        "measured_ns",
        "error_ns",
        "error",
        "cancelled_ns",
    ]
    if a.families["stable_ns"].null_count() < a.families.height:
        columns += ["stable_ns", "error_stable"]
    return told.select(columns).rename({"error_stable": "to stable"}, strict=False)


def _worst(a: Alignment) -> pl.DataFrame:
    columns = ("kernel", "shapes", "calls", "predicted_ns", "measured_ns", "error_ns", "error")
    return by_shape(a.pairs).filter(pl.col("absolute_ns") > 0).with_columns(_signed("error")).select(columns)


def _layers(a: Alignment) -> pl.DataFrame:
    columns = ("layer", "matched", "missing", "extra", "predicted_ns", "measured_ns", "error_ns", "error")
    table = a.layers.sort(pl.col("error_ns").abs(), descending=True).with_columns(_signed("error"))
    return table.with_columns(pl.col("layer").cast(pl.String).fill_null("outside")).select(columns)


def _grouped(found: pl.DataFrame, ns: str) -> pl.DataFrame:
    groups = found.group_by("kernel", "shapes").agg(calls=pl.len(), **{ns: pl.col(ns).sum()})
    return groups.sort(ns, "kernel", "shapes", descending=[True, False, False], nulls_last=True)


def _cancelling(a: Alignment) -> str:
    pairs = pl.DataFrame(a.cancelling.pairs[:10])
    if pairs.is_empty():
        return ""
    columns = {
        "over": "too long",
        "over_ns": "by µs",
        "under": "too short",
        "under_ns": "by µs ",
        "cancels_ns": "cancels µs",
    }
    return table(pairs, columns)


def _comm_markdown(a: Alignment) -> list[str]:
    if a.communication.is_empty():
        return []
    columns = {"kernel": "collective", "shapes": "shapes", "calls": "calls", "measured_ns": "measured µs",
               "median_ns": "median µs", "stable_ns": "stable µs", "wait_ns": "waiting µs"}  # fmt: skip
    return ["## Collectives", table(a.communication, columns)]
