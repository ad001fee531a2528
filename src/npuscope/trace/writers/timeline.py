"""What timelines show beside slices: their arguments, groups of lanes, and where an edge is drawn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import polars as pl

from npuscope.trace.clocks import by_collectives, clock_notes, not_aligned
from npuscope.trace.core import Trace
from npuscope.trace.schema import is_work

PLACE = {"lane", "start", "dur", "kernel", "kind", "depth", "phase"}  # phase follows from the marker
JSON_COLUMNS = ("args", "other")
MOST_FIELDS = 200


def annotation_columns(slices: pl.DataFrame) -> list[pl.Series]:
    """Columns of numbers and text, nulls where a slice has nothing to say; the JSON of `args` as its fields."""
    json = [name for name in JSON_COLUMNS if name in slices.columns and slices.schema[name] == pl.String]
    own = [_news(_sayable(slices[name]), slices) for name in slices.columns if name not in PLACE and name not in json]
    columns = [column for column in own if column.null_count() < slices.height]
    taken = {column.name for column in columns}
    for name in json:
        fields = [c.alias(f"{name} {c.name}") if c.name in taken else c for c in _fields(slices[name])]
        taken |= {column.name for column in fields}
        columns += fields
    return columns


def _sayable(column: pl.Series) -> pl.Series:
    """Numbers of 64 bits and text as they are; every other type as text."""
    if column.dtype in (pl.String, pl.Categorical, pl.Enum, pl.Boolean) or column.dtype.is_float():
        return column
    if column.dtype.is_integer() and column.dtype not in (pl.UInt64, pl.Int128, pl.UInt128):
        return column
    return pl.Series(column.name, [None if value is None else str(value) for value in column], dtype=pl.String)


def _news(column: pl.Series, slices: pl.DataFrame) -> pl.Series:
    """The column without what is said already: the kernel's name again, or the record's number as its task."""
    if column.name == "task":
        counts = bool(column[0] == 0 and (column.diff().drop_nulls() == 1).all()) if len(column) else False
        return column.clear(len(column)) if counts else column
    if column.dtype in (pl.String, pl.Categorical):
        same = column == slices["kernel"]
        return column.set(same, None) if same.any() else column
    return column


def _fields(texts: pl.Series) -> list[pl.Series]:
    """The fields of JSON objects, a column each; what is neither a number nor text stays JSON, and so do fields
    beyond the most frequent ones, so that a trace with a key per event does not become a table of rows times rows."""
    objects = [_object(text) for text in texts]
    frequent = [name for name, _ in Counter(name for fields in objects for name in fields).most_common(MOST_FIELDS)]
    columns: dict[str, list[Any]] = {name: [None] * len(objects) for name in frequent}
    rest: list[str | None] = [None] * len(objects)
    for row, fields in enumerate(objects):
        for name, value in fields.items():
            if name in columns:
                columns[name][row] = _plain(value)
        if len(fields) > 0 and not fields.keys() <= columns.keys():
            others = {name: value for name, value in fields.items() if name not in columns}
            rest[row] = msgspec.json.encode(others).decode()
    series = [_series(name, values) for name, values in columns.items()]
    return [*series, pl.Series("further args", rest, dtype=pl.String)] if any(rest) else series


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        fields = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {"args": text}  # such as numbers JSON can write and nobody can hold
    return fields if isinstance(fields, dict) else {"args": fields}


def _plain(value: Any) -> int | float | str | None:
    plain = isinstance(value, int | float | str) and not isinstance(value, bool)
    return value if plain or value is None else msgspec.json.encode(value).decode()


def _series(name: str, values: list[int | float | str | None]) -> pl.Series:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int} and all(value is None or -(2**63) <= int(value) < 2**63 for value in values):
        return pl.Series(name, values, dtype=pl.Int64)
    if kinds == {float} or (kinds == {int, float} and all(value is None or abs(value) < 2**53 for value in values)):  # type: ignore[arg-type]
        return pl.Series(name, values, dtype=pl.Float64, strict=False)
    return pl.Series(name, [None if v is None else str(v) for v in values], dtype=pl.String)


def edge_ends(trace: Trace) -> pl.DataFrame:
    """Per edge whose tasks both have a slice: the rows of the two slices in `trace.slices`."""
    name = pl.col("name") if "name" in trace.edges.columns else pl.lit(None, dtype=pl.String)
    called = [name.fill_null("edge").alias("name"), pl.col("source").fill_null("edge")]
    edges = trace.edges.select("src", "dst", *called).drop_nulls()
    if edges.is_empty():
        return pl.DataFrame(schema={"src_row": pl.UInt32, "dst_row": pl.UInt32, "name": pl.String, "source": pl.String})
    # a task is where it ran; the scheduler's and the host's slices about it come second
    about = is_work().not_()
    rows = trace.slices.select(
        "task", "start", about.alias("about"), end=pl.col("start") + pl.col("dur")
    ).with_row_index("row")
    rows = rows.filter(pl.col("task").is_not_null())
    last = rows.sort("about", "end", descending=[False, True]).unique("task", keep="first", maintain_order=True)
    first = rows.sort("about", "start").unique("task", keep="first", maintain_order=True)
    met = edges.join(
        last.select(pl.col("task").alias("src"), pl.col("row").alias("src_row")),
        on="src",
        maintain_order="left",
    )
    met = met.join(
        first.select(pl.col("task").alias("dst"), pl.col("row").alias("dst_row")),
        on="dst",
        maintain_order="left",
    )
    return met.filter(pl.col("src_row") != pl.col("dst_row")).select("src_row", "dst_row", "name", "source")


def not_drawn(trace: Trace, drawn: int) -> dict[str, int]:
    """What a timeline cannot show: edges with an end that has no slice, or from a slice to itself; how full rings were,
    which has no times."""
    rings = trace.meta.notes.get("rings", {})
    lost = {
        "edge without a slice at both ends": trace.edges.height - drawn,
        "use of a ring, heap or pool": len(rings.get("uses", ())),
    }
    return {what: count for what, count in lost.items() if count > 0}


def own_times(trace: Trace) -> dict[int, int]:
    """What to add to a rank's times so that they are those of its own clock, where the reader moved them; nothing where
    two clocks run at different rates, which no single number undoes."""
    notes = clock_notes(trace.meta)
    return {rank: -int(note["offset_ns"]) for rank, note in notes.items() if not note.get("rate_ppb")}


def rank_clocks(trace: Trace) -> dict[int, int]:
    """How far each of several ranks' clocks is ahead of the first one's: as the reader found it, else by their
    collectives; 0 where they share none. A rank that could not be aligned is laid behind all others, so that nobody
    takes it for one of their moments. Nothing for one rank."""
    ranks = trace.lanes["rank"].drop_nulls().unique().sort().to_list()
    if len(ranks) < 2:
        return {}
    if clock_notes(trace.meta) or not_aligned(trace.meta):
        return dict.fromkeys(ranks, 0) | own_times(trace) | _laid_behind(trace)
    comm = trace.slices.filter((pl.col("kind") == "comm") & pl.col("duplicate_of").is_null())
    ends = comm.join(trace.lanes.select("lane", "rank"), on="lane").select(
        "rank",
        pl.lit("").alias("run"),
        pl.lit(0).alias("older"),
        "kernel",
        pl.int_range(pl.len()).alias("task"),  # no rank numbers them as another does
        pl.int_range(pl.len()).over("rank", "kernel", order_by="start").alias("nth"),
        "start",
        end=pl.col("start") + pl.col("dur"),
    )
    offsets, _ = by_collectives(ends, ranks)
    return dict.fromkeys(ranks, 0) | {rank: -offset.offset_ns for rank, offset in offsets.items()}


def _laid_behind(trace: Trace) -> dict[int, int]:
    """How far ranks of no common clock are ahead of where they are drawn: one after the other, behind the rest."""
    apart = not_aligned(trace.meta)
    slices = trace.slices.select("lane", "start", end=pl.col("start") + pl.col("dur"))
    spans = (
        slices.join(trace.lanes.select("lane", "rank"), on="lane")
        .drop_nulls("rank")
        .group_by("rank")
        .agg(pl.col("start").min(), pl.col("end").max())
        .sort("rank")
    )
    behind = max((end for rank, _, end in spans.iter_rows() if rank not in apart), default=0)
    ahead: dict[int, int] = {}
    for rank, start, end in spans.iter_rows():
        if rank in apart:
            behind += max((end - start) // 10, 1)
            ahead[rank] = start - behind
            behind += end - start
    return ahead


def lane_groups(trace: Trace) -> pl.DataFrame:
    """The lanes with `group` (0, 1, …) and `group_name`, such as "rank 1, device 0, Python"."""
    keys = [name for name in ("rank", "device", "process") if name in trace.lanes.columns]
    groups = trace.lanes.select(keys).unique(maintain_order=True)
    apart = not_aligned(trace.meta)
    names = [
        _name(row, trace.meta.format) + (" (clock not aligned)" if row.get("rank") in apart else "")
        for row in groups.iter_rows(named=True)
    ]
    groups = groups.with_columns(pl.Series("group_name", names, dtype=pl.String)).with_row_index("group")
    return trace.lanes.join(groups, on=keys, nulls_equal=True, maintain_order="left")


def _name(row: dict[str, object], otherwise: str) -> str:
    words = [f"{key} {row[key]}" for key in ("rank", "device") if row[key] is not None]
    process = row.get("process")
    return ", ".join([*words, *([str(process)] if process else [])]) or otherwise
