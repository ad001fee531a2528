"""What the timeline draws of a run: lanes, slices, idle times, path, edges, bands and counters as packed columns.

Times are nanoseconds from the window's start. A row of the timeline is a lane, or one depth of a lane whose slices lie
inside one another; slices are sorted by row, then start, and `begins` says where each row's begin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.chip.kernels import area_of
from npuscope.explain.explanation import Explanation
from npuscope.explain.passes import passes
from npuscope.explain.passes.export import with_tracks
from npuscope.explain.waits import IN_WORDS, PARTS, REASONS
from npuscope.explain.work import Work, places
from npuscope.lab.payload.files import program_files
from npuscope.lab.payload.packed import Packed, packed, rising, whole_numbers
from npuscope.trace.core import READY_QUEUES, SERIES, Trace, by_time, overlaps, within
from npuscope.trace.intervals import Ints
from npuscope.trace.schema import SLICES

if TYPE_CHECKING:
    from npuscope.time.run import Simulated

MOST_SLICES = 2_000_000  # more are drawn together: a page must open
MOST_LANES = 2000
MOST_DEPTH = 48  # slices deeper inside one another share the last row
UNITS = {  # in the order in which they are drawn
    "AIC": "Cube cores (AIC)",
    "AIV": "Vector cores (AIV)",
    "stream": "Streams",
    "link": "Links",
    "AICPU": "Scheduler and orchestrator (AICPU)",
    "host": "Host",
}
NO_TIME = int(np.iinfo(np.int32).min)  # a time that the capture does not tell


@dataclass(frozen=True)
class Drawn:
    """The slices of a timeline: `row` numbers the trace's slices, -1 where several are drawn as one."""

    table: pl.DataFrame
    lanes: pl.DataFrame  # lane, name, unit, role, in the order drawn
    kernels: list[str]  # the device's, then the others'
    rows: list[tuple[int, int]]  # of each row its lane's place and its depth
    notes: list[str]


def timeline(explained: Explanation, simulated: Simulated | None = None) -> dict[str, object]:
    """Plain data for page/timeline."""
    work = explained.work
    drawn = _drawn(work)
    table, known, notes = drawn.table, len(work.kernels), list(drawn.notes)
    tasks = pl.concat([table["task"], explained.trace.edges["src"], explained.trace.edges["dst"]])
    tasks = tasks.drop_nulls().unique().sort()
    place = _places_of_lanes(work, drawn.lanes)
    idle = _bubbles(explained, place, drawn)
    return {
        "window": work.wall,
        "origin": work.window[0],
        "lanes": drawn.lanes.select("lane", "name", "unit", "role", "used").to_dicts(),
        "units": UNITS,
        "rows": [list(row) for row in drawn.rows],
        "kernels": drawn.kernels,
        "device_kernels": known,
        "areas": [area_of(name) for name in drawn.kernels],  # those of one area are of one hue on every page
        "core_lanes": place[work.core_lanes].tolist(),
        "reasons": reason_words(work.on_cores),
        "parts": list(PARTS),
        "chain": explained.path.kind == "chain",
        "slices": slice_columns(table, drawn, tasks, work.trace.slices, simulated),
        "facts": slice_facts(explained.trace, table["row"]),
        "tasks": rising(tasks),
        "sites": _sites(simulated),
        "bubbles": idle,
        "path": _path(explained, place),
        "edges": packed_edges(explained.trace.edges, tasks),
        "bands": bands(explained, simulated),
        "counters": counter_tracks(explained.trace, work.window),
        "notes": notes,
    }


def _drawn(work: Work) -> Drawn:
    notes: list[str] = []
    others = _others(work)
    names = others["kernel"].unique(maintain_order=True).to_list()
    device = pl.DataFrame(
        {
            "row": work.rows,
            "lane": work.lanes["lane"].cast(pl.Int64).to_numpy()[work.lane],
            "start": work.start - work.window[0],
            "end": work.end - work.window[0],
            "kernel": work.kernel,
        }
    )
    host = pl.DataFrame(
        {
            "row": others["row"].cast(pl.Int64),
            "lane": others["lane"].cast(pl.Int64),
            "start": (others["start"] - work.window[0]).clip(0, work.wall),
            "end": (others["start"] + others["dur"] - work.window[0]).clip(0, work.wall),
            "kernel": others["kernel"].cast(pl.Enum(names)).to_physical().cast(pl.Int64) + len(work.kernels),
        }
    )
    lanes = _lanes(work, others)
    if lanes.height > MOST_LANES:
        busy = pl.concat([device, host]).group_by("lane").agg(busy=(pl.col("end") - pl.col("start")).sum())
        kept = lanes.join(busy, on="lane", how="left").top_k(MOST_LANES, by=pl.col("busy").fill_null(0))["lane"]
        notes.append(f"The {MOST_LANES:,} busiest of {lanes.height:,} lanes are drawn.")
        lanes = lanes.filter(pl.col("lane").is_in(kept.implode()))
    table = pl.concat([device, host])
    known = work.trace.slices.select("depth", "task", "block").with_row_index("row").cast({"row": pl.Int64})
    table = table.join(known, on="row", how="left", maintain_order="left")
    place = dict(zip(lanes["lane"].to_list(), range(lanes.height), strict=True))
    table = table.filter(pl.col("lane").is_in(list(place))).with_columns(
        pl.col("lane").replace_strict(place, return_dtype=pl.Int64), pl.col("depth").fill_null(0).cast(pl.Int64)
    )
    # what is recorded twice is not drawn and leaves holes
    if (table["depth"] > 0).any():
        dense = (pl.col("depth").rank("dense").over("lane").cast(pl.Int64) - 1).clip(0, MOST_DEPTH - 1)
        table = table.with_columns(depth=dense)
    table = table.sort("lane", "depth", "start", maintain_order=True)
    if table.height > MOST_SLICES:
        slices = table.height
        table = drawn_together(table, work.wall, MOST_SLICES)
        notes.append(f"{slices:,} slices are drawn as {table.height:,}: short neighbours are drawn together.")
    return Drawn(table, lanes, [*work.kernels, *names], row_numbers(table, lanes.height), notes)


def _others(work: Work) -> pl.DataFrame:
    """What the device's work does not hold: schedulers, orchestrators, host threads."""
    slices = work.trace.slices.select("lane", "start", "dur", "kernel", "kind", "duplicate_of").with_row_index("row")
    if not (slices["kind"].is_in(["schedule", "host"])).any():
        return slices.clear()
    mine = pl.Series(work.rows, dtype=pl.UInt32)
    wanted = pl.col("kind").is_in(["schedule", "host"]) & pl.col("duplicate_of").is_null() & overlaps(*work.window)
    return slices.filter(wanted & ~pl.col("row").is_in(mine.implode()))


def _lanes(work: Work, others: pl.DataFrame) -> pl.DataFrame:
    """Lanes with slices, and cores without, units together and cores by number."""
    here = pl.concat([work.lanes["lane"], others["lane"].unique()]).unique()
    role = pl.col("role") if "role" in work.trace.lanes.columns else pl.lit(None, dtype=pl.String).alias("role")
    used = pl.concat([pl.Series(work.lanes["lane"].to_numpy()[np.unique(work.lane)]), others["lane"]]).unique()
    lanes = work.trace.lanes.select("lane", "name", pl.col("unit").cast(pl.String), "core", role)
    order = pl.col("unit").replace_strict({unit: n for n, unit in enumerate(UNITS)}, default=len(UNITS))
    return (
        lanes.filter(pl.col("lane").is_in(here.implode()))
        .with_columns(used=pl.col("lane").is_in(used.cast(pl.UInt32).implode()), order=order)
        .sort("order", pl.col("core").fill_null(-1), maintain_order=True)
    )


def row_numbers(table: pl.DataFrame, lanes: int) -> list[tuple[int, int]]:
    """A row per lane, and per depth of a lane that has several."""
    deepest = table.group_by("lane").agg(pl.col("depth").max())
    every = pl.DataFrame({"lane": pl.Series(range(lanes), dtype=pl.Int64)}).join(deepest, on="lane", how="left")
    counted = every.with_columns(pl.int_ranges(0, pl.col("depth").fill_null(0) + 1).alias("depth"))
    return [(int(lane), int(depth)) for lane, depth in counted.explode("depth").sort("lane", "depth").iter_rows()]


def slice_columns(
    table: pl.DataFrame, drawn: Drawn, tasks: pl.Series, slices: pl.DataFrame, simulated: Simulated | None = None
) -> dict[str, Packed]:
    """The drawn slices, packed; `slices` are the trace's."""
    row_of = {row: n for n, row in enumerate(drawn.rows)}
    counts = np.zeros(len(drawn.rows) + 1, np.int64)
    for lane, depth, count in table.group_by("lane", "depth").len().iter_rows():
        counts[row_of[lane, depth] + 1] = count
    stamps = slices.select("start", "dur", "dispatch", "finish").with_row_index("row")
    stamps = table.select(pl.col("row").cast(pl.UInt32, strict=False)).join(
        stamps, on="row", how="left", maintain_order="left"
    )
    columns = {
        "begins": whole_numbers(np.cumsum(counts)),
        "start": rising(table["start"]),
        "dur": whole_numbers(table["end"] - table["start"]),
        "kernel": whole_numbers(table["kernel"]),
        "task": packed(_task_places(table["task"], tasks), "i32"),
    }
    if table["block"].null_count() < table.height:
        columns["block"] = packed(table["block"].fill_null(-1), "i32")
    for name, wait in (
        ("before", stamps["start"] - stamps["dispatch"]),
        ("after", stamps["finish"] - stamps["start"] - stamps["dur"]),
    ):
        if wait.null_count() < len(wait):
            columns[name] = whole_numbers(wait.fill_null(NO_TIME))
    if "drawn" in table.columns:
        columns["drawn"] = whole_numbers(table["drawn"])
    if simulated is not None:
        columns |= _bodies(table, simulated)
    return columns


def _task_places(column: pl.Series, tasks: pl.Series) -> Ints:
    """Where each task stands among the known ones, -1 for none."""
    known = tasks.to_numpy()
    if len(known) == 0:
        return np.full(len(column), -1)
    found = np.searchsorted(known, column.fill_null(known[0]).to_numpy())
    return np.where(column.is_null().to_numpy(), -1, found)


def _bodies(table: pl.DataFrame, simulated: Simulated) -> dict[str, Packed]:
    """Of each block its class and the line that submits its task."""
    job, recording = simulated.prepared.job, simulated.prepared.program.recording
    task, block = (table[name].fill_null(-1).to_numpy() for name in ("task", "block"))
    task = np.where(task < len(recording.tasks), task, -1)  # of the rank's other programs
    site = np.append(np.array([one.site for one in recording.tasks], np.int64), -1)
    ran = (task >= 0) & (block >= 0)
    body = np.full(table.height, -1)
    if ran.any():
        levels = max(len(job.run) // max(len(simulated.prepared.classes.entries), 1), 1)  # of noise
        body[ran] = job.block_class[job.first_block[task[ran]] + block[ran]] // levels
    return {"body": packed(body, "i32"), "site": packed(site[np.where(task >= 0, task, len(site) - 1)], "i32")}


def _sites(simulated: Simulated | None) -> list[dict[str, object]]:
    if simulated is None:
        return []
    recording = simulated.prepared.program.recording
    names = program_files(recording)
    return [{"file": names[one.file], "line": one.line} for one in recording.sites]


def _places_of_lanes(work: Work, lanes: pl.DataFrame) -> Ints:
    """The place on the page of each lane of the work, -1 for one that is not drawn."""
    drawn = {lane: place for place, lane in enumerate(lanes["lane"].to_list())}
    return np.array([drawn.get(lane, -1) for lane in work.lanes["lane"].to_list()], dtype=np.int64)


def _bubbles(explained: Explanation, place: Ints, drawn: Drawn) -> dict[str, Packed]:
    """Idle times by row (the first of their lane), then start."""
    work, segments = explained.work, explained.bubbles.coded
    lane = place[places(segments["lane"].to_numpy(), work.lanes["lane"].to_numpy())]
    first = np.zeros(drawn.lanes.height + 1, np.int64)
    for n, (where, depth) in enumerate(drawn.rows):
        if depth == 0:
            first[where] = n
    kernels = pl.Enum(work.kernels)
    table = segments.with_columns(
        pl.Series("row", np.where(lane < 0, -1, first[lane])),
        pl.col("reason").cast(pl.String).replace_strict({r: n for n, r in enumerate(REASONS)}, return_dtype=pl.Int64),
        pl.col("kernel", "blocker").cast(kernels).to_physical().cast(pl.Int64).fill_null(-1),
    ).filter(pl.col("row") >= 0)
    if table.height > MOST_SLICES:
        table = table.top_k(MOST_SLICES, by=pl.col("end") - pl.col("start"))
    table = table.sort("row", "start")
    counts = np.bincount(table["row"].to_numpy(), minlength=len(drawn.rows)) if table.height else np.zeros(0, np.int64)
    begins = np.zeros(len(drawn.rows) + 1, np.int64)
    begins[1 : len(counts) + 1] = np.cumsum(counts)
    begins[len(counts) + 1 :] = begins[len(counts)]
    return {
        "begins": whole_numbers(begins),
        "start": rising(table["start"] - work.window[0]),
        "dur": whole_numbers(table["end"] - table["start"]),
        "reason": packed(table["reason"], "u8"),
        "kernel": packed(table["kernel"], "i32"),
        "blocker": packed(table["blocker"], "i32"),
    }


def _path(explained: Explanation, place: Ints) -> dict[str, Packed]:
    work, segments = explained.work, explained.path.coded
    row = segments["row"].to_numpy()
    return {
        "lane": packed(np.append(place[work.lane], -1)[row], "i32"),
        "start": rising(segments["start"] - work.window[0]),
        "end": rising(segments["end"] - work.window[0]),
        "part": packed(segments["part"].to_physical(), "u8"),
        "kernel": whole_numbers(np.append(work.kernel, 0)[row]),
    }


def packed_edges(edges: pl.DataFrame, tasks: pl.Series) -> dict[str, object]:
    edges = edges.drop_nulls(["src", "dst"])
    kinds = edges["source"].fill_null("").unique(maintain_order=True).to_list()
    kind = edges["source"].fill_null("").cast(pl.Enum(kinds)).to_physical() if kinds else edges["source"]
    return {
        "kinds": kinds,
        "src": packed(_task_places(edges["src"], tasks), "i32"),
        "dst": packed(_task_places(edges["dst"], tasks), "i32"),
        "kind": packed(kind if kinds else np.zeros(0), "u8"),
    }


MOST_BANDS = 5000  # of one kind


def bands(explained: Explanation, simulated: Simulated | None) -> list[dict[str, object]]:
    """Each with a title and its spans: start and end in nanoseconds from the window's start, and a name."""
    found = [("steps", _steps(explained)), ("layers", _layers(explained, simulated)), *_passes(explained)]
    return [{"title": title, "spans": spans[:MOST_BANDS]} for title, spans in found if spans]


def _steps(explained: Explanation) -> list[list[object]]:
    table, origin = explained.steps.table, explained.work.window[0]
    word = {"column": "step", "passes": "pass"}.get(explained.steps.source, "repeat")
    return [
        [start - origin, start - origin + span, f"{word} {step}" + (f" {phase}" if phase else "")]
        for step, start, span, phase in table.select("step", "start", "span_ns", "phase").iter_rows()
    ]


def _passes(explained: Explanation) -> list[tuple[str, list[list[object]]]]:
    """Forward passes and their layers, where a profiler's trace has them; on cores a scheduler mixes layers."""
    if explained.work.on_cores:
        return []
    try:
        drawn = with_tracks(passes(explained.trace))
    except NpuscopeError:  # no pass is found, which says nothing against the trace
        return []
    origin, titles = explained.work.window[0], drawn.lanes["name"].to_list()[-2:]
    added = drawn.slices.tail(drawn.slices.height - explained.trace.slices.height)
    first = drawn.lanes["lane"].to_list()[-2]
    spans: tuple[list[list[object]], list[list[object]]] = [], []
    for lane, start, dur, name in added.select("lane", "start", "dur", "kernel").iter_rows():
        spans[lane - first].append([start - origin, start + dur - origin, name])
    return list(zip(titles, spans, strict=True))


def _layers(explained: Explanation, simulated: Simulated | None) -> list[list[object]]:
    """From the first start to the last end of the tasks of each inline call; calls may overlap."""
    if simulated is None:
        return []
    names = pl.Series([task.layer for task in simulated.prepared.program.recording.tasks], dtype=pl.String)
    if names.n_unique() <= 1:
        return []
    slices = explained.work.slices.select("start", "dur", "task").filter(pl.col("task") < len(names))
    spans = (
        slices.with_columns(layer=names.gather(slices["task"]))
        .filter(pl.col("layer") != "")
        .group_by("layer")
        .agg(pl.col("start").min(), end=(pl.col("start") + pl.col("dur")).max())
        .sort("start")
    )
    origin = explained.work.window[0]
    return [[start - origin, end - origin, layer] for layer, start, end in spans.iter_rows()]


MOST_TRACKS = 100
NAMES = {name: f"ready queue {name.split()[-1]}" for name in READY_QUEUES}  # what people read
MOST_SAMPLES = 500_000  # of one track


def counter_tracks(trace: Trace, window: tuple[int, int]) -> list[dict[str, object]]:
    """One per lane and name; times are nanoseconds from the window's start."""
    if trace.counters.is_empty():
        return []
    samples = by_time(within(trace.counters.lazy(), *window).collect()).drop_nulls("value")
    several = trace.lanes["rank"].drop_nulls().n_unique() > 1
    of_rank = pl.format("rank {}, {}", "rank", "name").str.strip_suffix(", whole device")
    name = pl.when(pl.col("rank").is_not_null() & several).then(of_rank).otherwise("name")
    names = dict(trace.lanes.select("lane", name).iter_rows())
    tracks: list[dict[str, object]] = []
    for (lane, name), track in samples.group_by(*SERIES, maintain_order=True):
        if len(tracks) == MOST_TRACKS:
            break
        every = max(-(-track.height // MOST_SAMPLES), 1)
        thinned = track.gather_every(every)
        where = "" if lane is None else f" on {names.get(lane, lane)}"
        tracks.append(
            {
                "name": f"{NAMES.get(str(name), name)}{where}",
                "time": rising((thinned["time"] - window[0]).clip(0)),
                "value": packed(thinned["value"].cast(pl.Float64), "f64"),
                "most": float(track["value"].max() or 0),  # type: ignore[arg-type]
                "note": f"every {every}th sample" if every > 1 else "",
            }
        )
    return tracks


MOST_TEXT = 4_000_000  # characters of all different texts of a column
MOST_CELLS = 20_000_000  # of all columns


def slice_facts(trace: Trace, rows: pl.Series) -> list[dict[str, object]]:
    """A column each: numbers packed, texts as codes into their different values; what is the same in no row is left
    out where it would make the page too large. `rows` are the drawn slices' places in the trace, -1 for none."""
    found: list[dict[str, object]] = []
    place = pl.select(pl.when(rows >= 0).then(rows)).to_series().cast(pl.UInt32)
    cells = 0
    for name in ("step", *(name for name in trace.slices.columns if name not in SLICES)):
        if cells + len(rows) > MOST_CELLS:
            break
        column = trace.slices[name].gather(place)
        if column.null_count() == len(column):
            continue
        cells += len(rows)
        if column.dtype.is_numeric() or column.dtype == pl.Boolean:
            numbers = column.cast(pl.Float64).fill_null(float("nan"))
            found.append({"name": name, "number": packed(numbers, "f64")})
            continue
        texts = column.cast(pl.String, strict=False) if not column.dtype.is_nested() else None
        if texts is None:
            continue
        different = texts.drop_nulls().unique(maintain_order=True)
        if different.is_empty() or int(different.str.len_chars().sum()) > MOST_TEXT:
            continue
        codes = texts.cast(pl.Enum(different)).to_physical().cast(pl.Int64).fill_null(-1)
        found.append({"name": name, "code": whole_numbers(codes), "text": different.to_list()})
    return found


BUCKETS = 20_000  # of the window, to begin with


def drawn_together(table: pl.DataFrame, wall: int, most: int) -> pl.DataFrame:
    """At most about `most` rows: slices shorter than a bucket that begin in the same bucket of a row become one.

    `drawn` then says how many each stands for; one that stands for several has no task and no place in the trace.
    """
    table, bucket = table.with_columns(pl.lit(1).alias("drawn")), max(wall // BUCKETS, 1)
    while table.height > most and bucket < 2 * wall:
        short = (pl.col("end") - pl.col("start")) < bucket
        key = pl.when(short).then(pl.col("start") // bucket).otherwise(-1 - pl.int_range(pl.len()))
        alone = pl.len() == 1
        table = table.group_by("lane", "depth", key.alias("bucket"), maintain_order=True).agg(
            pl.col("start").min(), pl.col("end").max(), pl.col("kernel").first(),
            *(pl.when(alone).then(pl.col(name).first()).alias(name) for name in ("row", "task", "block")),
            pl.col("drawn").sum(),
        )  # fmt: skip
        table = table.drop("bucket").sort("lane", "depth", "start")
        bucket *= 2
    return table.with_columns(pl.col("row").fill_null(-1))


# {next} is what ran next on the lane, {for} what it waited for
ON_CORES = {
    "dependency": "{next} could not start: {for} was still running.",
    "FIN": "{for} had ended, but the scheduler had not noticed it, so {next} had to wait.",
    "dispatch": "Work was ready, but the scheduler had not handed it out. {next} came next.",
    "pickup": "The scheduler had handed {next} out, and the core had not started it.",
    "starved": "Nothing was ready for this core. {next} came next.",
    "edge": "This lane's first slice had not begun, or its last had ended.",
    "FIN+dispatch+pickup": "What {next} needs had ended; the scheduler had not started it.",
}
ON_STREAMS = {
    "launch": "The host had not launched {next} yet.",
    "pickup": "{next} was launched and had not started.",
    "dependency+pickup": "{next} was launched and had not started; for what it waited is not recorded.",
}
ON_STREAMS_SHORT = {"pickup": "launched, not started yet"}
NOT_RECORDED = "{next} came next; the capture does not say what it waited for."


def reason_words(on_cores: bool) -> list[dict[str, str]]:
    """Per reason, in the order of REASONS: its id, its words and a sentence."""
    sentences = ON_CORES if on_cores else {**ON_CORES, **ON_STREAMS}
    titles = IN_WORDS if on_cores else {**IN_WORDS, **ON_STREAMS_SHORT}
    return [
        {"id": reason, "title": titles[reason], "sentence": sentences.get(reason, NOT_RECORDED)} for reason in REASONS
    ]
