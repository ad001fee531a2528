"""Chrome JSON that npuscope wrote: kinds of slices, units of lanes and the window come back as they were."""

from __future__ import annotations

import polars as pl

from npuscope.trace import build, schema
from npuscope.trace.build import dress, kind_numbers, plain_lanes
from npuscope.trace.core import OWN, Trace, take_note
from npuscope.trace.event_table import EventTable
from npuscope.trace.names import unit_of_lane


def recognises(table: EventTable) -> bool:
    """True when the header has npuscope's own note."""
    other = table.header.get("otherData")
    return isinstance(other, dict) and isinstance(other.get(OWN), dict)


def dress_up(table: EventTable) -> Trace:
    """Categories are kinds, and names of lanes tell their units."""
    build.count_unknown_header(table)
    take_note(table.ledger, table.header["otherData"][OWN])
    known = set(schema.KINDS.categories)
    kinds = kind_numbers([category if category in known else "host" for category in table.categories])
    units = [unit_of_lane(name) for name in table.lane_names()]
    lanes = plain_lanes(table).with_columns(
        pl.Series("unit", [one.unit for one in units], dtype=pl.String),
        pl.Series("core", [one.core for one in units], dtype=pl.Int32),
    )
    return dress(table, "chrome", kind=kinds[table.slices["category"].to_numpy()], lanes=lanes)
