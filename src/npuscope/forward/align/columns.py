"""The columns of an alignment's tables. Errors are predicted minus measured."""

from __future__ import annotations

from npuscope.table.columns import Column, Columns
from npuscope.table.formats import CHANGE, COUNT, FLAG, TEXT, TIME

SUMS = (
    Column("predicted_ns", TIME, "of the prediction", scale="time"),
    Column("measured_ns", TIME, "of the measured pass", scale="time"),
    Column("error_ns", TIME, "predicted minus measured", scale="time"),
)
ERROR = Column("error", CHANGE, "the error, of the measured time; null where nothing was measured")
BY = (
    Column("matched", COUNT, "calls that both sides have", title="calls"),
    Column("missing", COUNT, "calls that the prediction does not have"),
    Column("extra", COUNT, "calls that only the prediction has"),
    *SUMS,
    Column("matched_error_ns", TIME, "the error of matched calls", wide=True),
    Column("absolute_ns", TIME, "errors of single calls without their signs, added up", wide=True),
    ERROR,
    Column("matched_error", CHANGE, "the error of matched calls, of their measured time", wide=True),
    Column(
        "cancelled_ns", TIME, "too long and too short, which cancel inside the row", title="cancels", explained=True
    ),
)
FAMILIES = Columns(
    "align.family_table",
    "A family of kernels, the largest error first.",
    (
        Column("family", TEXT, "its name"),
        *BY,
        Column("comm", FLAG, "whether it has collectives", wide=True),
        Column(
            "stable_ns",
            TIME,
            "collectives without waiting for other ranks",
            title="without waits",
            optional=True,
            explained=True,
        ),
        Column("wait_ns", TIME, "waiting in collectives; null where not known", optional=True, wide=True),
        Column(
            "error_stable", CHANGE, "predicted against the time without waits", title="error to that", optional=True
        ),
    ),
)
LAYER = Column("layer", COUNT, "its number; null is what lies outside", absent="outside")
LAYERS = Columns("align.layers", "A layer, in order.", (LAYER, *BY))
SHAPES = (
    Column("kernel", TEXT, "as measured"),
    Column("shapes", TEXT, "of its inputs, as measured"),
)
BY_SHAPE = Columns(
    "align.by_shape",
    "Matched calls of one kernel and shapes together, the largest sum of absolute errors first.",
    (
        SHAPES[0],
        Column("predicted_kernel", TEXT, "as predicted", wide=True),
        Column("family", TEXT, "its family", wide=True),
        SHAPES[1],
        Column("calls", COUNT, "alike"),
        *SUMS,
        Column("absolute_ns", TIME, "errors of single calls without their signs, added up", wide=True),
        ERROR,
    ),
)
COMMUNICATION = Columns(
    "align.communication",
    "Like collectives of the measured pass.",
    (
        Column("family", TEXT, "its family", wide=True),
        Column("kernel", TEXT, "as measured", title="collective"),
        SHAPES[1],
        Column("calls", COUNT, "alike"),
        Column("measured_ns", TIME, "of all of them", scale="time"),
        Column("median_ns", TIME, "of one"),
        Column("stable_ns", TIME, "without waiting; null for fewer than three", title="without waits"),
        Column("wait_ns", TIME, "the rest: waiting for other ranks", title="waiting"),
    ),
)
CANCELLING = Columns(
    "align.cancelling.pairs",
    "Two families whose errors cancel, the most first.",
    (
        Column("over", TEXT, "the family that is predicted too long", title="too long"),
        Column("over_ns", TIME, "by how much", title="by"),
        Column("under", TEXT, "the family that is predicted too short", title="too short"),
        Column("under_ns", TIME, "by how much, below zero", title="by"),
        Column("cancels_ns", TIME, "of both"),
    ),
)
ONE_CALL = "a row per call, which only a program reads; `by_shape` is for people"
PAIRS = Columns(
    "align.kernels",
    "A matched call, in the measured order.",
    (
        SHAPES[0],
        Column("predicted_kernel", TEXT, "as predicted"),
        Column("family", TEXT, "its family"),
        LAYER,
        Column("role", TEXT, "what the prediction says it does"),
        SHAPES[1],
        Column("predicted_shapes", TEXT, "as predicted"),
        Column("source", TEXT, "where the predicted time comes from"),
        Column("predicted", COUNT, "its position in the prediction", only=ONE_CALL),
        Column("measured", COUNT, "its position in the measured pass", only=ONE_CALL),
        Column("moved", FLAG, "matched out of order"),
        Column("same_shapes", FLAG, "whether shapes agree"),
        Column("comm", FLAG, "a collective"),
        *SUMS,
    ),
)


def _left_over(place: str, about: str, *times: Column) -> Columns:
    columns = (
        Column("index", COUNT, "its position in the order of its side"),
        Column("kernel", TEXT, "its type"),
        Column("family", TEXT, "its family"),
        LAYER,
        Column("role", TEXT, "what the prediction says it does"),
        SHAPES[1],
        *times,
    )
    return Columns(place, about, columns)


SOURCE = Column("source", TEXT, "where the predicted time comes from")
MISSING = _left_over("align.missing", "A call of the measured pass that the prediction does not have.", SUMS[1])
EXTRA = _left_over("align.extra", "A call that only the prediction has.", SOURCE, SUMS[0])
GROUPED = (*SHAPES, Column("calls", COUNT, "alike"))
MISSING_GROUPS = Columns("align.missing_by_shape", "The same, calls of one shape together.", (*GROUPED, SUMS[1]))
EXTRA_GROUPS = Columns("align.extra_by_shape", "The same, calls of one shape together.", (*GROUPED, SUMS[0]))
