"""Forward passes of ranks as Markdown, ready to post."""

from __future__ import annotations

import polars as pl

from npuscope.analysis.table import heading, percent
from npuscope.forward.passes.ranks import Ranks
from npuscope.forward.passes.skew import RankPasses
from npuscope.report.forward_text import count, flags, pass_table
from npuscope.report.markdown import bullets, document, table, text

MOST_PASSES = 100
MOST_FLAGS = 50
MOST_POSITIONS = 20


def forward_markdown(result: Ranks, command: str) -> str:
    """All ranks; `command` is how to make it again."""
    parts = ["# Forward passes"]
    if result.skew is not None:
        parts += [f"**{text(result.skew.title())}**", _table(result.skew.table)]
    for rank in result.ranks:
        parts += _rank(rank)
    parts += [bullets(f"not read: {text(name)}: {text(why)}" for name, why in result.not_read.items())]
    return document(parts, command)


def _rank(rank: RankPasses) -> list[str]:
    name = rank.path if rank.rank is None else f"rank {rank.rank}: {rank.path}"
    told = count(len(rank.passes), "forward pass", "forward passes")
    told += f", told apart by {rank.told['rule']}; layers by {rank.told['anchor']}."
    wrong = flags({**rank.told, "passes": rank.passes})[:MOST_FLAGS]
    parts = [f"## {text(name)}", text(told), _table(pass_table(rank.passes).head(MOST_PASSES))]
    parts.append(bullets(text(flag) for flag in wrong))
    if rank.statistics is not None and rank.statistics["positions"]:
        positions = pl.DataFrame(rank.statistics["positions"], infer_schema_length=None)
        share = pl.col("share").map_elements(percent, return_dtype=pl.String)
        top = positions.sort("total_ns", descending=True).head(MOST_POSITIONS).with_columns(share)
        for kind in rank.statistics["sequences"]:
            parts.append(f"Layer {text(kind['layers'])}: {text(' → '.join(kind['kernels']))}")
        parts += [f"### Where the time goes in {text(rank.statistics['phase'])}, by position", _table(top)]
    return parts


def _table(frame: pl.DataFrame) -> str:
    return table(frame, {name: heading(name) for name in frame.columns})
