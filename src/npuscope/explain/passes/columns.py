"""The columns of what is told of forward passes."""

from __future__ import annotations

from npuscope.table.columns import Column, Columns
from npuscope.table.formats import COUNT, FLAG, LIST, MEAN_TIME, NUMBER, SHARE, TEXT, TIME, Form, percent


def _anchor_left_out(value: object) -> str:
    return percent(value["anchor"]) if isinstance(value, dict) else str(value)


CLOCK = "a moment of a clock says little"
PASSES = Columns(
    "forward.passes",
    "A forward pass, in order, rank by rank.",
    (
        Column("rank", COUNT, "null for a single capture", only="the heading over its passes tells it"),
        Column("device", COUNT, "null unless one capture holds several", only="the heading over its passes tells it"),
        Column("index", COUNT, "its number", title="pass"),
        Column("step", COUNT, "null where none is marked"),
        Column("phase", TEXT, "prefill, decode, draft or unknown"),
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
        Column(
            "told_twice",
            COUNT,
            "rows left out: they list another row's work a second time",
            title="listed twice",
            wide=True,
        ),
        Column("anchor_start_ns", TIME, "the first anchor's start", only=CLOCK),
        Column("anchor_end_ns", TIME, "the last anchor's end", only=CLOCK),
        Column(
            "excluded",
            Form("text", "object: window -> share of 1", _anchor_left_out),
            "share of the pass's device time that each window leaves out; null for `anchor` where there is none",
            title="anchor window leaves out",
            wide=True,
        ),
    ),
)
SKEW = Columns(
    "forward.skew.table",
    "A rank; means over the passes that all of them have.",
    (
        Column("rank", COUNT, "its number"),
        Column("union_ns", MEAN_TIME, "device time of a pass", scale="time"),
        Column("comm_ns", MEAN_TIME, "of it collectives", scale="time"),
        Column("compute_ns", MEAN_TIME, "the rest", scale="time"),
        Column("wait_ns", MEAN_TIME, "in collectives, above the shortest of all ranks", scale="time"),
        Column("last", COUNT, "passes in which the others waited for it"),
    ),
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
    (
        Column("layer", COUNT, "its number"),
        Column("passes", COUNT, "that have it"),
        *SPREAD,
        Column("odd", FLAG, "its median is above 1.5 times that of all layers"),
        Column("farthest", TEXT, "the position that takes most above its usual"),
        Column("farthest_ns", MEAN_TIME, "how much that is"),
    ),
)
POSITIONS = Columns(
    "forward.ranks.statistics.positions",
    "A kernel at its place in a layer, or in the head or tail of a pass; in order.",
    (
        Column("part", TEXT, "head, layer or tail"),
        Column("kernel", TEXT, "its type"),
        Column("nth", COUNT, "which of this kernel's calls in a layer", explained=True),
        Column("count", COUNT, "calls"),
        *SPREAD,
        Column("total_ns", TIME, "of all calls"),
        Column("share", SHARE, "of all kernels' time"),
    ),
)
