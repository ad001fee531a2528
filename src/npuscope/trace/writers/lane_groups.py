"""Lanes of one rank, device and source process belong together on a timeline."""

from __future__ import annotations

import polars as pl

from npuscope.trace.core import Trace


def lane_groups(trace: Trace) -> pl.DataFrame:
    """The lanes with `group` (0, 1, …) and `group_name`, such as "rank 1, device 0, Python"."""
    keys = [name for name in ("rank", "device", "process") if name in trace.lanes.columns]
    groups = trace.lanes.select(keys).unique(maintain_order=True)
    names = [_name(row, trace.meta.format) for row in groups.iter_rows(named=True)]
    groups = groups.with_columns(pl.Series("group_name", names, dtype=pl.String)).with_row_index("group")
    return trace.lanes.join(groups, on=keys, nulls_equal=True, maintain_order="left")


def _name(row: dict[str, object], otherwise: str) -> str:
    words = [f"{key} {row[key]}" for key in ("rank", "device") if row[key] is not None]
    process = row.get("process")
    return ", ".join([*words, *([str(process)] if process else [])]) or otherwise
