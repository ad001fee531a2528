"""Time per token for a terminal: the measurement basis as one table, groups by area, and which steps were simulated."""

from __future__ import annotations

from typing import Any

import polars as pl

from npuscope.analysis.table import aligned, frame_lines, levels, percent
from npuscope.llm.tpot import COUNTS, Tpot
from npuscope.llm.tpot_history import commit_told, settings_told

RUNS = 40  # of a history, drawn in a line

TOLD = {
    "tasks": "tasks per step",
    "blocks": "blocks per step",
    "records": "AICore task records per step (a mixed block has three)",
}


def tpot_text(result: Tpot) -> str:
    return "\n".join(
        [
            result.title(),
            *aligned(rows(result), (False, True)),
            groups_title(result),
            *frame_lines(groups(result)),
            *frame_lines(steps(result)),
            interpolated(result),
            *(f"note: {note}" for note in result.notes),
        ]
    )


def since_text(known: list[dict[str, Any]], entry: dict[str, Any]) -> str:
    """The new entry of a history beside those of the same settings."""
    told = settings_told(entry)
    before = [one for one in known if settings_told(one) == told]
    if not before:
        return "The history has no earlier run with these settings."
    values = [float(one["ms_per_token"]) for one in (*before, entry)][-RUNS:]
    old, new = values[-2:]
    change = f" ({new / old - 1:+.1%})" if old else ""
    trend = levels(value / (max(values) or 1.0) for value in values)
    return f"Since {commit_told(before[-1])}: {old:,.3f} → {new:,.3f} ms/token{change}; runs so far {trend}"


def rows(result: Tpot) -> list[tuple[str, str]]:
    """The measurement basis: what and how much."""
    of_tokens = result.over_tokens("ms")
    return [
        ("ms per token, mean", f"{result.mean('ms'):,.3f}"),
        ("  first, last token", f"{of_tokens[0]:,.3f}, {of_tokens[-1]:,.3f}"),
        *((TOLD[name], f"{result.mean(name):,.0f}") for name in COUNTS),
        ("mean run µs", f"{result.mean('mean_run_us'):,.2f}"),
        ("mean dispatch→finish µs", f"{result.mean('mean_dispatch_to_finish_us'):,.2f}"),
        ("overhead (1 − run / dispatch→finish)", percent(result.mean("overhead"))),
        ("AICPU: orchestrator busy", percent(result.mean("orchestrator_busy"))),
        ("AICPU: scheduler threads busy, mean", percent(result.mean("schedulers_busy"))),
    ]


def groups_title(result: Tpot) -> str:
    return "groups per layer" if result.layers is not None else "groups per step (the program takes no --layers)"


def groups(result: Tpot) -> pl.DataFrame:
    total = sum(result.groups.values()) or 1
    found = [(area, count, percent(count / total)) for area, count in result.groups.items()]
    return pl.DataFrame(found, schema={"area": pl.String, "groups": pl.Int64, "share": pl.String}, orient="row")


def steps(result: Tpot) -> pl.DataFrame:
    columns = ("length", "ms", "tasks", "records", "mean_run_us", "mean_dispatch_to_finish_us")
    names = ("tokens of a row", "ms", "tasks", "records", "run µs", "dispatch→finish µs")
    return result.frame().select(pl.col(old).alias(new) for old, new in zip(columns, names, strict=True))


def interpolated(result: Tpot) -> str:
    count, of = len(result.simulated), result.decoding.tokens
    if count == of:
        return f"All {of} steps were simulated."
    return f"{count} of {of} steps were simulated (a row's length counts the new token); linear between them."
