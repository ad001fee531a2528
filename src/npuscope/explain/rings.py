"""How full the runtime's rings, heaps and pools were, where a run kept count of it (scope_stats.jsonl): against what
they hold, in which scope, and what to set."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.table.columns import Column, Columns, Table, Tabular
from npuscope.table.formats import COUNT, SHARE, TEXT, many, percent
from npuscope.trace.core import Meta
from npuscope.trace.readers.run_files import RESOURCES

RINGS = Columns(
    "report.rings",
    "A resource of the runtime and how full it was at most; entries, or bytes of the heap.",
    Column("resource", TEXT, "task_window, heap, dep_pool or tensormap"),
    Column("ring", COUNT, "which; the tensor map is one for all"),
    Column("high_water", COUNT, "at most in use during a scope: an upper bound, which may exceed the capacity"),
    Column("live", COUNT, "at most still in use where a scope ended"),
    Column("capacity", COUNT, "what it holds"),
    Column("share", SHARE, "high water of the capacity", title="of it"),
    Column("site", TEXT, "the scope with the highest water"),
    Column("set_to", COUNT, "a capacity with room: twice the high water, as a power of two", title="set to"),
)
TIGHT = 0.9  # of the capacity: submissions may have had to wait for room
ROOMY = 2  # times the high water


@dataclass(frozen=True, repr=False)
class RingFullness(Tabular):
    """Every resource that was counted."""

    table: pl.DataFrame
    fatal: bool
    dropped: int
    capacities: Mapping[str, list[int]]  # of all rings, by resource

    in_json = ("fatal", "dropped", "sentences")

    def tables(self) -> dict[str, Table]:
        return {"table": Table(RINGS, self.table)}

    @property
    def tight(self) -> pl.DataFrame:
        return self.table.filter(pl.col("share") >= TIGHT)

    def title(self) -> str:
        return self.sentences[0]

    @property
    def sentences(self) -> list[str]:
        """What is tight and what to set; or how far everything is from it."""
        lines = []
        for row in self.tight.iter_rows(named=True):
            where = "The tensor map" if row["ring"] is None else f"Ring {row['ring']}'s {row['resource']}"
            what = f"{where} is {percent(row['share'])} full at most ({row['high_water']:,} of {row['capacity']:,})"
            lines.append(f"{what}, in the scope at {row['site']}: where it is full, submitting waits.")
        lines += [f"Set {setting}." for setting in self.settings]
        if not lines and self.table.height:
            row = self.table.sort("share", descending=True, nulls_last=True).row(0, named=True)
            ring = "" if row["ring"] is None else f" of ring {row['ring']}"
            lines.append(
                f"No ring is tight: the fullest is the {row['resource']}{ring} with {percent(row['share'] or 0)}."
            )
        if self.dropped:
            lines.append(f"{many(self.dropped, 'sample')} were lost on the device: the high water may be higher.")
        if self.fatal:
            lines.append("The run ended with a fatal error: what comes after it says little.")
        return lines

    @property
    def settings(self) -> list[str]:
        """Variables of the environment that would give every tight ring room, the others as they are."""
        found = []
        for resource, name in RESOURCES.items():
            tight = self.tight.filter(pl.col("resource") == resource)
            if tight.height:
                room = dict(tight.select("ring", "set_to").iter_rows())
                sizes = dict(enumerate(self.capacities.get(resource, []))) | room
                found.append(f"{name}={','.join(str(size) for _, size in sorted(sizes.items()))}")
        return found


def rings_of(meta: Meta) -> RingFullness | None:
    """What the notes of a trace say; None where nothing was counted."""
    notes = next((one["rings"] for one in meta.all_notes() if one.get("rings")), None)
    if not notes or not notes.get("uses"):
        return None
    rows = []
    for use in notes["uses"]:
        capacity, water = use["capacity"], use["high_water"]
        site = f"{use['site']} ({use['where']})" if "where" in use else use["site"]
        rows.append(
            {
                **{name: use[name] for name in ("resource", "ring", "high_water", "live", "capacity")},
                "share": water / capacity if capacity else None, "site": site,
                "set_to": max(1 << (ROOMY * water - 1).bit_length(), capacity) if water else capacity,
            }
        )  # fmt: skip
    types = {"ring": pl.Int64, "share": pl.Float64, "set_to": pl.Int64}
    table = pl.DataFrame(rows, schema_overrides=types, infer_schema_length=None).select(RINGS.keys)
    return RingFullness(table, bool(notes.get("fatal")), int(notes.get("dropped", 0)), notes.get("capacities", {}))
