"""Forward passes of ranks as text: the list, what is wrong with passes, layers and positions that stand out."""

from __future__ import annotations

from typing import Any

import polars as pl

from npuscope.analysis.table import frame_lines, microseconds, percent, printable, short
from npuscope.forward.passes.ranks import Ranks
from npuscope.forward.passes.skew import RankPasses

MOST_PASSES = 60
MOST_FLAGS = 12
STEADY = 0.05  # a spread below this is not worth a line
WIDEST = 8  # positions with the largest spread, and with the largest share


def forward_text(result: Ranks) -> str:
    """Everything, rank by rank."""
    blocks = [_rank(rank, len(result.ranks) > 1) for rank in result.ranks]
    if result.skew is not None:
        blocks.append([result.skew.title(), *frame_lines(result.skew.table)])
    if result.not_read:
        blocks.append([f"not read: {short(name, 100)}: {printable(why)}" for name, why in result.not_read.items()])
    return "\n\n".join("\n".join(block) for block in blocks)


def _rank(rank: RankPasses, several: bool) -> list[str]:
    told = {**rank.told, "passes": rank.passes}
    passes = rank.passes
    name = f"rank {rank.rank}, {rank.path}" if several else rank.path
    lines = [
        f"{printable(name)}: {count(len(passes), 'forward pass', 'forward passes')}, told apart by {told['rule']}; "
        f"layers by {short(told['anchor'], 80)}"
    ]
    lines += frame_lines(pass_table(passes), MOST_PASSES)
    told_wrong = flags(told)
    lines += [f"  {flag}" for flag in told_wrong[:MOST_FLAGS]]
    if len(told_wrong) > MOST_FLAGS:
        lines.append(f"  … and {len(told_wrong) - MOST_FLAGS} more")
    return [*lines, *_statistics(rank.statistics)] if rank.statistics else lines


def flags(told: dict[str, Any]) -> list[str]:
    """What is wrong with passes, and what belongs to none."""
    flagged = [(p["index"], reason) for p in told["passes"] for reason in p["reasons"]]
    lines = [f"pass {index}: {printable(reason)}" for index, reason in flagged]
    if told["outside"]:
        time = microseconds(told["outside_ns"])
        lines.append(f"in no pass: {told['outside']:,} rows, {time} µs of device time")
    return lines


def pass_table(passes: list[dict[str, Any]]) -> pl.DataFrame:
    """The passes as people read them."""
    rows = [
        {
            "pass": p["index"],
            "step": None if p["step"] is None else str(p["step"]),
            "phase": p["phase"],
            "tokens": p["tokens"],
            "layers": p["layers"],
            "attentions": p["attentions"],
            "whole": "yes" if p["complete"] else "no",
            "disturbed": "yes" if p["disturbed"] else "no",
            "span_ns": p["end_ns"] - p["start_ns"],
            "sum_ns": p["sum_ns"],
            "union_ns": p["union_ns"],
            "comm_ns": p["comm_ns"],
            "anchor window leaves out": percent(p["excluded"]["anchor"]),
        }
        for p in passes
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def _statistics(told: dict[str, Any]) -> list[str]:
    layers = pl.DataFrame(told["layers"], infer_schema_length=None)
    if not told["positions"]:
        return [f"{told['phase']}: nothing ran on the device"]
    lines = [f"{told['phase']} over {count(len(told['passes']), 'pass', 'passes')}:"]
    if layers.height:
        odd = layers.filter("odd")
        middle = layers["p50_ns"].median()
        lines.append(f"  a layer takes {microseconds(middle)} µs of device time (median)")  # type: ignore[arg-type]
        for layer, p50, name, above in odd.select("layer", "p50_ns", "farthest", "farthest_ns").iter_rows():
            why = f"{short(name)} takes {microseconds(above)} µs more than in other layers"
            lines.append(f"  layer {layer} is odd: {microseconds(p50)} µs; {why}")
        if odd.is_empty():
            lines.append("  no layer stands out")
    for kind in told["sequences"]:
        chain = " → ".join(short(kernel, 40) for kernel in kind["kernels"])
        lines.append(f"  layer {kind['layers']}: {chain}")
    positions = pl.DataFrame(told["positions"], infer_schema_length=None)
    shown = positions.with_columns(pl.col("share").map_elements(percent, return_dtype=pl.String))
    lines += ["", "  where the time goes, by position:"]
    lines += frame_lines(shown.sort("total_ns", descending=True).head(WIDEST))
    spread = shown.filter((positions["share"] > 0.001) & (pl.col("cv") > STEADY)).sort("cv", descending=True)
    if spread.height:
        lines += ["", "  what varies most, of positions above 0.1 % of the time:", *frame_lines(spread.head(WIDEST))]
    return lines


def count(n: int, one: str, many: str) -> str:
    """A number and its noun."""
    return f"{n:,} {one if n == 1 else many}"
