"""Forward passes of one rank: where each begins and ends, its layers, phase, device time, and what is wrong with it.

Device time is that of rows that count once and do not run on the AI CPU: as a sum, and as a union, since streams
overlap. Every row of the capture is in one pass or outside of all, which is counted.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.chip.kernels import phase_of as kernel_phase
from npuscope.explain.passes.condition import Phase, complete_and_draft, disturbances, phase_of
from npuscope.explain.passes.cuts import bounds
from npuscope.explain.passes.layers import HEAD, OUTSIDE, TAIL, alike, layers, pass_and_layer
from npuscope.explain.passes.sequence import FEWEST_ANCHORS, REPETITION, Flags, Sequence, stretches
from npuscope.explain.repetition import PassCount, numbers_of_repeats
from npuscope.explain.work import CORES, kernel_group
from npuscope.table.columns import Column, Columns, Table, Tabular, as_data
from npuscope.table.formats import COUNT, FLAG, LIST, MEAN_TIME, NUMBER, SHARE, TEXT, TIME, Form, percent
from npuscope.trace.core import Trace
from npuscope.trace.intervals import Intervals, Ints, inside, one_group, sum_by, union
from npuscope.trace.names import source_column

PARTS = pl.Enum(["head", "layer", "tail"])
MOST = 0.8  # of what repeats
LONGEST_LAYER = 100  # kernels
WINDOWS = ("anchor", "full", "capture")


def _anchor_left_out(value: object) -> str:
    return percent(value["anchor"]) if isinstance(value, dict) else str(value)


CLOCK = "a moment of a clock says little"
PASSES = Columns(
    "forward.passes",
    "A forward pass, in order, rank by rank.",
    
        Column("rank", COUNT, "null for a single capture", only="the heading over its passes tells it"),
        Column("device", COUNT, "null unless one capture holds several", only="the heading over its passes tells it"),
        Column("index", COUNT, "its number", title="pass"),
        Column("step", COUNT, "null where none is marked"),
        Column("phase", TEXT, "prefill, decode, mixed, draft, training or unknown"),
        Column("tokens", COUNT, "null where not recorded"),
        Column("sequences", COUNT, "null where not recorded", wide=True),
        Column("layers", COUNT, "of the model"),
        Column("attentions", COUNT, "calls that stand for layers", wide=True),
        Column("complete", FLAG, "whether the capture has all of it", title="whole"),
        Column("disturbed", FLAG, "whether something else took time"),
        Column("reasons", LIST, "what it lacks, what disturbed it", only="sentences: they stand below the table"),
        Column("start_ns", TIME, "first start", only=CLOCK),
        Column("end_ns", TIME, "last end", only=CLOCK),
        Column("span_ns", TIME, "first start to last end", scale="time", title="start to end"),
        Column("sum_ns", TIME, "kernels' times added up", scale="time", title="kernels added up", wide=True),
        Column("union_ns", TIME, "when anything ran on the device", scale="time", title="device busy"),
        Column("comm_ns", TIME, "when a collective ran", scale="time", title="communication"),
        Column("aicpu_ns", TIME, "on the AI CPU, not in the others", scale="time", title="AI CPU", wide=True),
        Column("rows", COUNT, "of the capture", wide=True),
        Column("told_twice", COUNT, "rows left out: they list another row's work a second time", title="listed twice",
               wide=True),
        Column("anchor_start_ns", TIME, "the first anchor's start", only=CLOCK),
        Column("anchor_end_ns", TIME, "the last anchor's end", only=CLOCK),
        Column("excluded", Form("text", "object: window -> share of 1", _anchor_left_out),
               "share of the pass's device time that each window leaves out; null for `anchor` where there is none",
               title="anchor window leaves out", wide=True),
)  # fmt: skip
SKEW = Columns(
    "forward.skew.table",
    "A rank; means over the passes that all of them have.",
    Column("rank", COUNT, "its number"),
    Column("union_ns", MEAN_TIME, "device time of a pass", scale="time"),
    Column("comm_ns", MEAN_TIME, "of it collectives", scale="time"),
    Column("compute_ns", MEAN_TIME, "the rest", scale="time"),
    Column("wait_ns", MEAN_TIME, "in collectives, above the shortest of all ranks", scale="time"),
    Column("last", COUNT, "passes in which the others waited for it"),
)
SPREAD = (
    Column("mean_ns", MEAN_TIME, "mean", scale="spread"),
    Column("p50_ns", MEAN_TIME, "median", scale="spread"),
    Column("p95_ns", MEAN_TIME, "95% take at most this", scale="spread"),
    Column("cv", NUMBER, "standard deviation over mean", title="CV", explained=True),
)
LAYERS = Columns(
    "forward.ranks.statistics.layers",
    "A layer, its kernels' summed time over the passes.",
    Column("layer", COUNT, "its number"),
    Column("passes", COUNT, "that have it"),
    *SPREAD,
    Column("odd", FLAG, "its median is above 1.5 times that of all layers"),
    Column("farthest", TEXT, "the position that takes most above its usual"),
    Column("farthest_ns", MEAN_TIME, "how much that is"),
)
POSITIONS = Columns(
    "forward.ranks.statistics.positions",
    "A kernel at its place in a layer, or in the head or tail of a pass; in order.",
    Column("part", TEXT, "head, layer or tail"),
    Column("kernel", TEXT, "its type"),
    Column("nth", COUNT, "which of this kernel's calls in a layer", explained=True),
    Column("count", COUNT, "calls"),
    *SPREAD,
    Column("total_ns", TIME, "of all calls"),
    Column("share", SHARE, "of all kernels' time"),
)


TYPICAL = Columns(
    "forward.ranks.statistics.typical",
    "A part of the pass whose span is in the middle; they sum to its span.",
    Column("part", TEXT, "before the layers, layers, after the layers, or the gaps between kernels"),
    Column("kernels", COUNT, "calls"),
    Column("span_ns", TIME, "of the pass: at each moment the kernel counts that began first", title="time"),
    Column("share", SHARE, "of the pass"),
)


class _Counted(NamedTuple):
    """The rows that count, by their places among the trace's slices: pass, layer, and whether they are device time."""

    row: Ints
    in_pass: Ints
    layer: Ints
    on_device: Flags


@dataclass(frozen=True, repr=False)
class Passes(Tabular):
    """`table` has a row per pass, `rows` one per slice of the trace."""

    trace: Trace
    table: pl.DataFrame
    counted: _Counted
    rule: str  # how passes were told apart
    anchor: str  # what stands for a layer
    attentions_per_layer: int
    kinds: tuple[str, ...]  # passes of one kind may be held against one another: phase, size, the kernel of a layer
    reasons: tuple[tuple[str, ...], ...]  # what each pass lacks, and what disturbed it
    outside: int  # rows that count and are in no pass
    outside_ns: int  # their device time

    in_json = ("rule", "anchor", "attentions_per_layer", "outside", "outside_ns", "count")

    def tables(self) -> dict[str, Table]:
        table = self.table.with_columns(
            (pl.col("end_ns") - pl.col("start_ns")).alias("span_ns"),
            pl.struct(anchor="excluded_anchor", full=pl.lit(0.0), capture=pl.lit(0.0)).alias("excluded"),
            pl.Series("reasons", [list(reasons) for reasons in self.reasons], dtype=pl.List(pl.String)),
        )
        return {"passes": Table(PASSES, table)}

    def title(self) -> str:
        return f"{self.count}; told apart by {self.rule}, layers by {self.anchor}"

    @cached_property
    def count(self) -> PassCount:
        """All of them in few numbers."""
        return pass_count(self.table, self.anchor)

    @cached_property
    def rows(self) -> pl.DataFrame:
        """Of each slice `in_pass`, `layer` and `part`, null outside; `first_listing`, the row that another repeats;
        `on_device`, true for what counts as device time."""
        return _of_slices(self.trace, self.counted)

    @cached_property
    def order(self) -> pl.DataFrame:
        """The device rows of passes in the order of start: row, in_pass, layer, part, kernel, kind, start, dur."""
        slices = self.trace.slices
        frame = self.rows.with_row_index("row").hstack(slices.select("start", "dur", "kind", kernel_group(slices)))
        counted = pl.col("in_pass").is_not_null() & pl.col("on_device")
        return frame.filter(counted).sort("start", maintain_order=True)

    def about(self) -> dict[str, object]:
        """What is said of all passes together."""
        return {name: as_data(getattr(self, name)) for name in self.in_json}


def pass_count(table: pl.DataFrame, anchor: str) -> PassCount:
    """Passes, as PASSES tells, in few numbers. One takes what the clean ones of the main kind take; where none is
    clean, the whole ones; else all. What only repeats may be an iteration and is not called a layer."""
    whole = table.filter(pl.col("complete"))
    clean = whole.filter(~pl.col("disturbed"))
    usable = next((some for some in (clean, whole) if some.height), table)
    phases = dict(table["phase"].value_counts().sort("count", "phase", descending=[True, False]).iter_rows())
    phase, layers = main_kind(usable)
    like = usable.filter((pl.col("phase") == phase) & (pl.col("layers") == layers))
    spans = (like["end_ns"] - like["start_ns"]).to_numpy()
    pass_ns = float(np.median(spans)) if len(spans) else None
    if anchor.startswith(REPETITION):
        return PassCount(table.height, clean.height, phases, phase, 0, pass_ns, False)
    vary = whole.filter(pl.col("phase") != "draft")["layers"].n_unique() > 1
    return PassCount(table.height, clean.height, phases, phase, layers, pass_ns, vary)


def main_kind(table: pl.DataFrame) -> tuple[str, int]:
    """The phase and the layers that most device time of passes went to: a pass of other layers is another model's."""
    kind = ["phase", "layers"]
    spent = table.group_by(kind).agg(pl.col("union_ns").sum()).sort("union_ns", *kind)
    phase, layers = spent.select(kind).row(-1) if spent.height else ("unknown", 0)
    return str(phase), int(layers)


class NoPasses(NpuscopeError):
    """Nothing tells forward passes apart in a capture."""


def passes(trace: Trace, anchor: str | None = None) -> Passes:
    """The forward passes of a trace of one rank; `anchor` is a regular expression for the kernel of a layer."""
    sequence = Sequence.of(trace)
    path = trace.meta.files[0] if trace.meta.files else None
    if not len(sequence):
        raise NoPasses("no kernel ran in this capture, so there is no forward pass", path=path)
    # tasks of one kernel run side by side on cores: no order tells passes
    if anchor is None and trace.lanes["unit"].is_in(CORES).any():
        anchors, how = sequence.row[:0], ""
    else:
        anchors, how = sequence.anchors(anchor)
    per_step = np.unique(sequence.step[anchors], return_counts=True)[1] if len(anchors) else np.zeros(1)
    # where few repeat in each of a capture's steps, what repeats is the step and no layer
    only_steps = how.startswith(REPETITION) and sequence.has_steps and np.median(per_step) < FEWEST_ANCHORS
    if how.startswith(REPETITION) and not sequence.has_steps and (again := _iterations(trace, sequence)) is not None:
        return _result(trace, again, _by_steps(trace, again)._replace(rule=REPETITION))
    if len(anchors) and not only_steps:
        return _result(trace, sequence, _by_anchors(trace, sequence, anchors, how))
    if sequence.has_steps:
        return _result(trace, sequence, _by_steps(trace, sequence))
    remedy = "Name a kernel that every layer runs with --anchor."
    raise NoPasses("no steps, no attention, and no kernel that repeats as in layers", path=path, remedy=remedy)


def _iterations(trace: Trace, sequence: Sequence) -> Sequence | None:
    """The sequence with what repeats as its steps, where that is whole iterations and not layers: most have a copy, or
    a kernel that only training runs, or more kernels than a layer."""
    numbers = numbers_of_repeats(sequence.symbol, sequence.start, sequence.end)
    if numbers is None:
        return None
    times = int(numbers.max()) + 1
    tells = _only_training(sequence) | (trace.slices["kind"].gather(sequence.row) == "copy").to_numpy()
    with_mark = len(np.unique(numbers[tells & (numbers >= 0)]))
    if with_mark < MOST * times and int(np.median(np.bincount(numbers[numbers >= 0]))) < LONGEST_LAYER:
        return None
    return replace(sequence, step=numbers, steps=list(range(times)))


def _only_training(sequence: Sequence) -> Flags:
    """Rows of kernels that only training runs."""
    return np.array([kernel_phase(name) == "training" for name in sequence.names], dtype=bool)[sequence.symbol]


class _Cut(NamedTuple):
    """Rows of the sequence with their pass and layer; the rest has an entry per pass."""

    in_pass: Ints
    layer: Ints
    attentions: Ints
    layers: Ints
    first: Ints  # row of the first anchor, -1 without anchors
    last: Ints
    complete: Flags
    draft: Flags
    phases: list[Phase]
    lacks: list[list[str]]
    per_layer: int
    rule: str
    anchor: str


def _by_anchors(trace: Trace, sequence: Sequence, anchors: Ints, how: str) -> _Cut:
    found = stretches(sequence, anchors, not how.startswith(REPETITION))
    cut, groups = bounds(found), alike(found)
    of_passes = layers(found, cut, groups)
    in_pass, of_layer = pass_and_layer(found, cut, of_passes)
    # the phase that the first attention of each pass tells, unless its mark does
    name = source_column(trace.slices, "input_shapes")
    rows, symbols = sequence.row[cut.first], sequence.symbol[cut.first].tolist()
    shapes = [None] * len(rows) if name is None else trace.slices[name].gather(rows).to_list()
    phases = [phase_of(sequence.names[symbol], text) for symbol, text in zip(symbols, shapes, strict=True)]
    phases = _known_phases(trace, sequence, in_pass, phases)
    complete, draft, lacks = complete_and_draft(found, cut, of_passes, groups, [phase.name for phase in phases])
    there = in_pass[anchors]
    attentions = np.bincount(there[there >= 0], minlength=len(cut.begin))
    per_layer = np.array([layer.attentions for layer in of_passes])
    main = int(per_layer[int(np.argmax(found.sizes))])
    return _Cut(in_pass, of_layer, attentions, found.sizes // per_layer, cut.first, cut.last, complete, draft, phases,
                lacks, main, found.rule, how)  # fmt: skip


def _known_phases(trace: Trace, sequence: Sequence, in_pass: Ints, phases: list[Phase]) -> list[Phase]:
    """Training where a kernel ran that only training has; else what the framework's mark of the step says, if
    anything; else what was known already."""
    trained = set(in_pass[_only_training(sequence)].tolist())
    step = np.full(len(phases), -1)
    step[in_pass[in_pass >= 0]] = sequence.step[in_pass >= 0]
    marks = trace.marks.select("step", "phase", "tokens").drop_nulls("phase")
    said = {number: Phase(phase, tokens) for number, phase, tokens in marks.iter_rows()}
    return [
        phase._replace(name="training") if n in trained else said.get(sequence.steps[at], phase) if at >= 0 else phase
        for n, (phase, at) in enumerate(zip(phases, step.tolist(), strict=True))
    ]


def _by_steps(trace: Trace, sequence: Sequence) -> _Cut:
    steps, in_pass = np.unique(sequence.step, return_inverse=True)
    in_pass = in_pass.reshape(-1) - int(steps[0] < 0)
    none = np.zeros(int((steps >= 0).sum()), dtype=np.int64)
    phases = _known_phases(trace, sequence, in_pass, [Phase("unknown") for _ in none])
    lacks = [list[str]() for _ in none]
    return _Cut(in_pass, np.where(in_pass < 0, OUTSIDE, HEAD), none, none, none - 1, none - 1, none == 0, none > 0,
                phases, lacks, 0, "step", "nothing, since no attention ran")  # fmt: skip


def _result(trace: Trace, sequence: Sequence, cut: _Cut) -> Passes:
    n, in_pass = len(cut.attentions), cut.in_pass
    inside_one = in_pass >= 0
    timed, comm = inside_one & sequence.on_device, inside_one & sequence.on_device & sequence.is_comm
    beside = inside_one & ~sequence.on_device
    length = sequence.end - sequence.start
    busy = union(Intervals(in_pass[timed], sequence.start[timed], sequence.end[timed]))
    union_ns = busy.lengths(n)
    first, last = np.full(n, np.iinfo(np.int64).max), np.full(n, np.iinfo(np.int64).min)
    np.minimum.at(first, in_pass[inside_one], sequence.start[inside_one])
    np.maximum.at(last, in_pass[inside_one], sequence.end[inside_one])
    pause, same = np.zeros(n, dtype=np.int64), busy.group[1:] == busy.group[:-1]
    np.maximum.at(pause, busy.group[1:][same], (busy.start[1:] - busy.end[:-1])[same])
    step = np.full(n, -1)
    step[in_pass[inside_one]] = sequence.step[inside_one]
    anchored = ["" if first < 0 else sequence.names[sequence.symbol[first]] for first in cut.first.tolist()]
    kinds = [
        f"{phase.scale} {size} {anchor}"
        for phase, size, anchor in zip(cut.phases, cut.attentions, anchored, strict=True)
    ]
    shapes = source_column(trace.slices, "input_shapes")
    places = sequence.row[timed]
    text = trace.slices[shapes].gather(places) if shapes else pl.Series([""]).new_from_index(0, len(places))
    narrow = pl.DataFrame(
        {
            "in_pass": in_pass[timed],
            "kernel": pl.Series(sequence.names, dtype=pl.String).gather(sequence.symbol[timed]),
            "shapes": text.fill_null(""),
            "dur": length[timed],
            "layer": cut.layer[timed],
            "is_comm": sequence.is_comm[timed],
        }
    )
    disturbed = disturbances(narrow, kinds, union_ns, pause)
    counted = _Counted(sequence.row, cut.in_pass, cut.layer, sequence.on_device)
    again = trace.slices["duplicate_of"].is_not_null()
    twice = _of_slices(trace, counted)["in_pass"].filter(again).drop_nulls() if again.any() else pl.Series([0]).clear()
    draft = cut.draft.tolist()
    table = pl.DataFrame(
        {
            "index": np.arange(n),
            "step": pl.Series(
                [None if at < 0 or cut.rule == REPETITION else sequence.steps[at] for at in step.tolist()],
                dtype=pl.Int64,
            ),
            "phase": ["draft" if one else phase.name for phase, one in zip(cut.phases, draft, strict=True)],
            "tokens": pl.Series([phase.tokens for phase in cut.phases], dtype=pl.Int64),
            "sequences": pl.Series([phase.sequences for phase in cut.phases], dtype=pl.Int64),
            "layers": cut.layers,
            "attentions": cut.attentions,
            "complete": cut.complete,
            "disturbed": [bool(reasons) for reasons in disturbed],
            "start_ns": first,
            "end_ns": last,
            "sum_ns": sum_by(in_pass[timed], length[timed], n),
            "union_ns": union_ns,
            "comm_ns": union(Intervals(in_pass[comm], sequence.start[comm], sequence.end[comm])).lengths(n),
            "aicpu_ns": sum_by(in_pass[beside], length[beside], n),
            "rows": np.bincount(in_pass[inside_one], minlength=n),
            "told_twice": np.bincount(twice.to_numpy(), minlength=n),
            **_anchor_window(sequence, cut, busy, union_ns),
        }
    )
    left = ~inside_one & sequence.on_device
    left_ns = union(one_group(sequence.start[left], sequence.end[left])).length
    reasons = tuple((*lacks, *why) for lacks, why in zip(cut.lacks, disturbed, strict=True))
    return Passes(
        trace, table, counted, cut.rule, cut.anchor, cut.per_layer, tuple(kinds), reasons,
        int((~inside_one).sum()), left_ns,
    )  # fmt: skip


def _of_slices(trace: Trace, counted: _Counted) -> pl.DataFrame:
    """Pass, layer and part of every slice; a second telling is where the first one is."""
    in_pass = np.full(trace.slices.height, -1)
    layer = np.full(trace.slices.height, OUTSIDE)
    first_listing = np.arange(trace.slices.height)
    in_pass[counted.row], layer[counted.row] = counted.in_pass, counted.layer
    again = trace.slices.select("task", "duplicate_of").with_row_index("row")
    duplicates = again.filter(pl.col("duplicate_of").is_not_null()).select("row", "duplicate_of")
    if duplicates.height:
        first = again.select(pl.col("row").alias("first"), "task").unique("task", keep="first")
        duplicates = duplicates.join(first, left_on="duplicate_of", right_on="task")
        row, of = duplicates["row"].to_numpy(), duplicates["first"].to_numpy()
        first_listing[row], in_pass[row], layer[row] = of, in_pass[of], layer[of]
    on_device = np.zeros(trace.slices.height, dtype=bool)
    on_device[counted.row] = counted.on_device
    frame = pl.DataFrame({"in_pass": in_pass, "layer": layer, "first_listing": first_listing, "on_device": on_device})
    part = pl.when(pl.col("layer") >= 0).then(pl.lit("layer")).when(pl.col("layer") == TAIL).then(pl.lit("tail"))
    return frame.select(
        pl.when(pl.col("in_pass") >= 0).then("in_pass").alias("in_pass"),
        pl.when(pl.col("layer") >= 0).then("layer").alias("layer"),
        pl.when(pl.col("in_pass") >= 0).then(part.otherwise(pl.lit("head"))).cast(PARTS).alias("part"),
        "first_listing",
        "on_device",
    )


def _anchor_window(sequence: Sequence, cut: _Cut, busy: Intervals, union_ns: Ints) -> dict[str, pl.Series]:
    """From the first anchor's start to the last one's end, and the share of device time outside; null without."""
    known = np.flatnonzero(cut.first >= 0)
    windows = Intervals(known, sequence.start[cut.first[known]], sequence.end[cut.last[known]])
    kept = inside(busy, windows)
    kept_ns = sum_by(busy.group[kept.of], kept.end - kept.start, len(union_ns))
    frame = pl.DataFrame(
        {
            "anchor_start_ns": sequence.start[cut.first],
            "anchor_end_ns": sequence.end[cut.last],
            "excluded_anchor": 1 - kept_ns / np.maximum(union_ns, 1),
        }
    )
    return frame.select(pl.when(pl.Series(cut.first >= 0)).then(pl.all())).to_dict()
