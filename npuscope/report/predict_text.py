"""A predicted forward pass as text and as Markdown."""

from __future__ import annotations

import polars as pl

from npuscope.analysis.table import aligned, microseconds, percent, short
from npuscope.llm.prediction import Prediction

HEADER = ["role", "kernel", "count", "each µs", "total µs", "of limit", "source"]
RIGHT = [False, False, True, True, True, True, False]


def predict_text(prediction: Prediction) -> str:
    """Total, a table by role, what is not calibrated or not known, and the assumptions."""
    lines = [_headline(prediction), "", *aligned([HEADER, *_rows(prediction)], RIGHT), "", *prediction.confidence()]
    lines += [f"  {n['calls']}x {n['kernel']} ({n['role']}): {n['why']}" for n in prediction.unknown()]
    lines += ["", "Assumptions:", *(f"  {line}" for line in prediction.assumptions())]
    return "\n".join(lines)


def predict_markdown(prediction: Prediction, command: str) -> str:
    """The same, ready to post."""
    sides = " | ".join("---:" if right else "---" for right in RIGHT)
    lines = [f"**{_headline(prediction)}**", "", f"| {' | '.join(HEADER)} |", f"| {sides} |"]
    lines += [f"| {' | '.join(row)} |" for row in _rows(prediction)]
    lines += ["", *(f"* {line}" for line in prediction.confidence())]
    lines += [f"* {n['calls']}x {n['kernel']} ({n['role']}): {n['why']}" for n in prediction.unknown()]
    lines += [f"* {line}" for line in prediction.assumptions()]
    return "\n".join([*lines, "", f"`{command}`", ""])


def _headline(prediction: Prediction) -> str:
    run = prediction.run
    tokens = f"batch {run.batch}" if run.phase == "decode" else f"{run.tokens:,} tokens"
    spread = [f"{name} {ranks}" for name, ranks in (("tp", run.tp), ("dp", run.dp), ("ep", run.ep)) if ranks > 1]
    how = ", ".join([tokens, f"context {run.context:,}", *spread, *([run.quant] if run.quant != "none" else [])])
    time = f"{microseconds(prediction.total_ns)} µs in {len(prediction.kernels):,} kernels"
    without = sum(row["calls"] for row in prediction.unknown())
    told = f"{prediction.model.title} {run.phase}, {how} on {prediction.device.title}: {time}"
    told += f", without {without:,} that have no price" if without else ""
    return told if prediction.memory.fits else f"{told}. {prediction.memory.sentence()}"


def _rows(prediction: Prediction) -> list[list[str]]:
    rows = prediction.frame().with_columns(pl.col("each_ns").round().cast(pl.Int64))
    return [
        [
            short(row["role"]),
            short(row["kernel"]),
            f"{row['count']:,}",
            microseconds(row["each_ns"]),
            microseconds(row["total_ns"]),
            percent(row["efficiency"]),
            row["source"] + (" outside its range" if row["extrapolated"] else ""),
        ]
        for row in rows.to_dicts()
    ]
