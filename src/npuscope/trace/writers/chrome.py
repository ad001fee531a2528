"""Chrome/Perfetto JSON. Times are decimal microseconds with three places, so no nanosecond is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson
import polars as pl

from npuscope.base import progress
from npuscope.trace import schema
from npuscope.trace.clocks import not_aligned
from npuscope.trace.core import OWN, WHOLE_DEVICE, Counts, Trace, lane_id, note_of
from npuscope.trace.formats import Writer
from npuscope.trace.schema import us_from_ns
from npuscope.trace.writers.atomic import whole_file
from npuscope.trace.writers.timeline import JSON_COLUMNS, annotation_columns, edge_ends, lane_groups, not_drawn

BATCH = 1 << 17
PLACE = (pl.col("pid"), pl.col("tid"))
FACTS = ("num_cores", "whole_graph", "launched_ns")  # notes that analyses read
KEPT = {*schema.SLICES, *JSON_COLUMNS}  # come back by themselves


def write(trace: Trace, path: Path) -> Counts:
    """One event per line: names of lanes, slices, a start and an end per edge, then counters; notes in the header."""
    ends = edge_ends(trace).with_row_index("id")
    with whole_file(path) as file:
        notes = orjson.dumps({OWN: note_of(trace) | _own_note(trace)}, option=orjson.OPT_NON_STR_KEYS).decode()
        file.write(f'{{"displayTimeUnit":"ns","otherData":{notes},"traceEvents":['.encode())
        separator = "\n"
        for lines in _batches(trace, path, ends):
            for line in lines:
                file.write(f"{separator}{line}".encode())
                separator = ",\n"
        file.write(b"\n]}\n")
    apart = not_aligned(trace.meta)
    own_times = {"rank whose clock is not aligned with the others': its times are its own": len(apart)} if apart else {}
    return {**not_drawn(trace, ends.height), **own_times}


def _own_note(trace: Trace) -> dict[str, object]:
    """What events have no place for: what each lane is, the columns whose cells are arguments, the device."""
    role = pl.col("role") if "role" in trace.lanes.columns else pl.lit(None)
    lanes = _places(trace).select("pid", "tid", pl.col("unit").cast(pl.String), "core", "device", "rank", role, "name")
    columns = [name for name in trace.slices.columns if name not in KEPT and trace.slices.schema[name] == pl.String]
    columns += [name for name in ("cat",) if name in trace.slices.columns and name not in columns]
    whole = [name for name, type in trace.slices.schema.items() if name not in KEPT and type.is_integer()]
    note = {
        "lanes": [list(row) for row in lanes.iter_rows()],
        "columns": columns,
        "whole_numbers": whole,
        "device": trace.meta.device,
    }
    note |= {name: trace.meta.notes.get(name) for name in FACTS}
    return {name: value for name, value in note.items() if value}


def _batches(trace: Trace, path: Path, ends: pl.DataFrame) -> Iterator[pl.Series]:
    places = _places(trace)
    yield _name_events(places, trace.counters["lane"].null_count() > 0)
    said = [
        *annotation_columns(trace.slices),
        *(trace.slices[name] for name in ("phase",) if name in trace.slices.columns),
    ]
    for begin in range(0, trace.slices.height, BATCH):
        progress.report(f"writing {path.name}", begin, trace.slices.height)
        yield _slice_events(trace.slices.slice(begin, BATCH), [c.slice(begin, BATCH) for c in said], places)
    yield _edge_events(trace, places, ends)
    for begin in range(0, trace.counters.height, BATCH):
        yield _counter_events(trace.counters.slice(begin, BATCH), places)


def _places(trace: Trace) -> pl.DataFrame:
    """Lanes with a pid per group and a tid each, as text."""
    pid, tid = (pl.col("group") + 1).cast(pl.String), (pl.col("lane") + 1).cast(pl.String)
    return lane_groups(trace).with_columns(pid.alias("pid"), tid.alias("tid"))


def _name_events(places: pl.DataFrame, whole_device: bool) -> pl.Series:
    events: list[dict[str, object]] = []
    for pid, name in places.select("pid", "group_name").unique(maintain_order=True).iter_rows():
        events.append({"ph": "M", "name": "process_name", "pid": int(pid), "args": {"name": name}})
    for name, pid, tid in places.select("name", "pid", "tid").iter_rows():
        events.append({"ph": "M", "name": "thread_name", "pid": int(pid), "tid": int(tid), "args": {"name": name}})
    if whole_device:
        pid = _device_pid(places)
        events.append({"ph": "M", "name": "process_name", "pid": pid, "args": {"name": WHOLE_DEVICE}})
    return pl.Series([orjson.dumps(event).decode() for event in events], dtype=pl.String)


def _slice_events(slices: pl.DataFrame, columns: list[pl.Series], places: pl.DataFrame) -> pl.Series:
    args = [pl.concat_str(pl.lit(f"{orjson.dumps(c.name).decode()}:"), json_text(c)) for c in columns]
    rows = slices.join(places.select("lane", "pid", "tid"), on="lane", maintain_order="left")
    said = pl.concat_str(args, separator=",", ignore_nulls=True) if args else pl.lit("")
    event = _filled(
        '{"ph":"X","name":%,"cat":"%","pid":%,"tid":%,"ts":%,"dur":%,"args":{%}}',
        json_text(slices["kernel"]).fill_null('""'),
        pl.col("kind").cast(pl.String).fill_null("host"),
        *PLACE,
        us_from_ns(pl.col("start")),
        us_from_ns(pl.col("dur")),
        said,
    )
    return rows.select(event.alias("event"))["event"]


def _edge_events(trace: Trace, places: pl.DataFrame, ends: pl.DataFrame) -> pl.Series:
    rows = (
        trace.slices.select("lane", "start", "dur")
        .with_row_index("row")
        .join(places.select("lane", "pid", "tid"), on="lane")
    )
    inside = (pl.col("start") + pl.col("dur") - 1).clip(lower_bound=pl.col("start"))  # the last moment of the source
    both = [("s", "src_row", inside, ""), ("f", "dst_row", pl.col("start"), ',"bp":"e"')]
    events = []
    for phase, side, moment, binding in both:
        at = ends.join(rows, left_on=side, right_on="row", maintain_order="left")
        event = _filled(
            f'{{"ph":"{phase}","name":%,"cat":%,"id":%,"pid":%,"tid":%,"ts":%{binding}}}',
            json_text(at["name"]),
            json_text(at["source"]),
            pl.col("id").cast(pl.String),
            *PLACE,
            us_from_ns(moment),
        )
        events.append(at.select(event.alias("event"))["event"])
    return pl.concat(events)


def _counter_events(counters: pl.DataFrame, places: pl.DataFrame) -> pl.Series:
    """A sample each. Viewers know counters of a process by name and id only: a lane's have its name as id."""
    ids = pl.Series("id", [lane_id(name) for name in places["name"]], dtype=pl.String)
    rows = counters.join(places.select("lane", "pid", "tid", ids), on="lane", how="left", maintain_order="left")
    id = pl.concat_str(pl.lit(',"id":'), json_text(rows["id"]).alias("id"))
    event = _filled(
        '{"ph":"C","name":%,"pid":%,"tid":%%,"ts":%,"args":{"value":%}}',
        json_text(rows["name"]),
        pl.col("pid").fill_null(str(_device_pid(places))),
        pl.col("tid").fill_null("0"),
        id.fill_null(""),
        us_from_ns(pl.col("time")),
        json_text(rows["value"]),
    )
    return rows.select(event.alias("event"))["event"]


def _filled(template: str, *values: pl.Expr | pl.Series) -> pl.Expr:
    """Text with a value in place of each %."""
    first, *others = template.split("%")
    parts = [part for value, after in zip(values, others, strict=True) for part in (value, pl.lit(after))]
    return pl.concat_str(pl.lit(first), *parts)


def _device_pid(places: pl.DataFrame) -> int:
    """A process number that no group of lanes has."""
    return places["group"].n_unique() + 1


def json_text(column: pl.Series) -> pl.Series:
    """Every value as JSON text; null for null, and for numbers JSON cannot say."""
    if column.dtype.is_integer():
        return column.cast(pl.String)
    if column.dtype.is_float():
        return column.set(~column.is_finite(), None).cast(pl.String)
    text = column.cast(pl.String)
    distinct = text.drop_nulls().unique()
    quoted = [orjson.dumps(value).decode() for value in distinct]
    return text.replace_strict(distinct, quoted, default=None, return_dtype=pl.String)


WRITER = Writer("chrome", "Chrome/Perfetto JSON (.json)", write, (".json",))
