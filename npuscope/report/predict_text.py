"""A predicted forward pass as text and as Markdown."""

from __future__ import annotations

import polars as pl

from npuscope.analysis.table import frame_lines, heading, microseconds, percent, printable
from npuscope.llm.prediction import Prediction
from npuscope.report.markdown import bullets, document, table, text


def predict_text(prediction: Prediction) -> str:
    """Total, a table by role, what is not calibrated or not known, and the assumptions."""
    roles = _roles(prediction)
    lines = [_headline(prediction), "", *frame_lines(roles, roles.height), "", *prediction.confidence()]
    lines += [f"  {line}" for line in _unknown(prediction)]
    lines += ["", "Assumptions:", *(f"  {printable(line)}" for line in prediction.assumptions())]
    return "\n".join(lines)


def predict_markdown(prediction: Prediction, command: str) -> str:
    """The same, ready to post; `command` is how to make it again."""
    roles = _roles(prediction)
    told = [*prediction.confidence(), *_unknown(prediction), *prediction.assumptions()]
    parts = [
        f"**{text(_headline(prediction))}**",
        table(roles, {name: heading(name) for name in roles.columns}),
        bullets(text(line) for line in told),
    ]
    return document(parts, command)


def _headline(prediction: Prediction) -> str:
    run = prediction.run
    tokens = f"batch {run.batch}" if run.phase == "decode" else f"{run.tokens:,} tokens"
    spread = [f"{name} {ranks}" for name, ranks in (("tp", run.tp), ("dp", run.dp), ("ep", run.ep)) if ranks > 1]
    how = ", ".join([tokens, f"context {run.context:,}", *spread, *([run.quant] if run.quant != "none" else [])])
    time = f"{microseconds(prediction.total_ns)} µs in {len(prediction.kernels):,} kernels"
    without = sum(row["calls"] for row in prediction.unknown())
    told = f"{prediction.model.title} {run.phase}, {how} on {printable(prediction.device.title)}: {time}"
    told += f", without {without:,} that have no price" if without else ""
    return told if prediction.memory.fits else f"{told}. {prediction.memory.sentence()}"


def _roles(prediction: Prediction) -> pl.DataFrame:
    """The table for people."""
    extrapolated = pl.when("extrapolated").then(pl.lit(" outside its range")).otherwise(pl.lit(""))
    return prediction.frame().select(
        "role",
        "kernel",
        "count",
        "each_ns",
        "total_ns",
        pl.col("efficiency").map_elements(percent, return_dtype=pl.String, skip_nulls=False).alias("of limit"),
        pl.col("source") + extrapolated,
    )


def _unknown(prediction: Prediction) -> list[str]:
    return [f"{n['calls']}x {n['kernel']} ({n['role']}): {n['why']}" for n in prediction.unknown()]
