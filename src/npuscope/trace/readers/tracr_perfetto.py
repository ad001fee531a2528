"""The perfetto.json that TraCR's own post-processor writes from a bundle."""

from __future__ import annotations

import polars as pl

from npuscope.trace import build
from npuscope.trace.build import dress, kind_numbers, plain_lanes
from npuscope.trace.core import Trace
from npuscope.trace.event_table import EventTable
from npuscope.trace.names import unit_of_lane

PROCESS = "TraCR proc."


def recognises(table: EventTable) -> bool:
    """True when every named process is one of TraCR's."""
    names = table.process_names.values()
    return bool(names) and all(name.startswith(PROCESS) for name in names)


def dress_up(table: EventTable) -> Trace:
    """Lanes as TraCR names them. On pipelined cores its slices are cut short: the bundle itself reads better."""
    build.count_unknown_header(table)
    units = [unit_of_lane(name) for name in table.lane_names()]
    lanes = plain_lanes(table).with_columns(
        pl.Series("unit", [unit.unit for unit in units], dtype=pl.String),
        pl.Series("core", [unit.core for unit in units], dtype=pl.Int32),
    )
    kinds = kind_numbers([unit.kind for unit in units])
    if any(unit.kind == "task" for unit in units):
        table.ledger.notes["cut_short"] = "core lanes hold one open slice at a time, so pipelined tasks are cut short"
    return dress(table, "tracr-perfetto", kind=kinds[table.slices["lane"].to_numpy()], lanes=lanes, clock="per process")
