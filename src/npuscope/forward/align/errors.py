"""Errors of a prediction, from matched pairs to families, layers and collectives, and which of them cancel.

An error is predicted minus measured: above zero the prediction is too long. Tables carry `missing` (measured, not
predicted) and `extra` (predicted, not measured) calls along, so that they add up to the totals of both sides.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from npuscope.base.frozen import dataclass
from npuscope.chip.kernels import landmark_of
from npuscope.forward.align.pairing import Pairing
from npuscope.forward.align.sides import PassSide
from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import CHANGE, COUNT, FLAG, TEXT, TIME
from npuscope.trace.intervals import Ints

LIKE = 3  # like collectives that are needed for a median to tell waiting from transfer
OUTSIDE = -1  # the layer of what lies before, after or beside layers


@dataclass(frozen=True)
class Layers:
    """The layer of each call on either side, OUTSIDE where it has none; `source` says how it was told."""

    predicted: Ints
    measured: Ints
    source: str


def layers_of(predicted: PassSide, measured: PassSide, pairing: Pairing) -> Layers:
    """From the layer column of a side, carried over by the matches; else from one attention to the next."""
    in_order = ~pairing.moved & pairing.ordered
    p, m = pairing.predicted[in_order], pairing.measured[in_order]
    outside = Layers(np.full(predicted.calls.height, OUTSIDE), np.full(measured.calls.height, OUTSIDE), "none")
    if not pairing.ordered:
        return outside
    if predicted.tells("layer"):
        own = predicted.calls["layer"].fill_null(OUTSIDE).to_numpy()
        return Layers(own, _carried(own, p, m, measured.calls.height), "the prediction's layer column")
    if measured.tells("layer"):
        own = measured.calls["layer"].fill_null(OUTSIDE).to_numpy()
        return Layers(_carried(own, m, p, predicted.calls.height), own, "the measured pass's layer column")
    own = np.cumsum([landmark_of(name) == "attention" for name in measured.calls["kernel"]]) - 1
    if own[-1] > OUTSIDE:
        source = "attentions of the measured pass: a layer is from one to the next"
        return Layers(_carried(own, m, p, predicted.calls.height), own, source)
    return outside


def _carried(layer: Ints, known: Ints, other: Ints, calls: int) -> Ints:
    """Layers of the other side's calls: of their match, else of the match before, else of the first."""
    if not len(known):
        return np.full(calls, OUTSIDE)
    before = np.searchsorted(other, np.arange(calls), side="right") - 1
    return layer[known[np.maximum(before, 0)]]


def pair_table(predicted: PassSide, measured: PassSide, pairing: Pairing, layers: Layers) -> pl.DataFrame:
    """One row per matched pair, in the measured order."""
    ours, theirs = predicted.calls[pairing.predicted], measured.calls[pairing.measured]
    families = pl.Series([pairing.measured_families[n] for n in pairing.measured.tolist()], dtype=pl.String)
    return pl.DataFrame(
        {
            "kernel": theirs["kernel"],
            "predicted_kernel": ours["kernel"],
            "family": families,
            "layer": _layer_column(layers.measured[pairing.measured]),
            "role": ours["role"],
            "shapes": _shape_column(theirs),
            "predicted_shapes": _shape_column(ours),
            "source": ours["source"],
            "predicted": pairing.predicted,
            "measured": pairing.measured,
            "moved": pairing.moved,
            "same_shapes": pairing.same_shapes,
            "comm": theirs["comm"] | ours["comm"],
            "predicted_ns": ours["dur"],
            "measured_ns": theirs["dur"],
            "error_ns": ours["dur"] - theirs["dur"],
        }
    )


def left_over(side: PassSide, rows: Ints, families: list[str], layers: Ints, ns: str) -> pl.DataFrame:
    """The calls of one side that have no partner."""
    calls = side.calls[rows]
    return pl.DataFrame(
        {
            "index": rows,
            "kernel": calls["kernel"],
            "family": pl.Series([families[n] for n in rows.tolist()], dtype=pl.String),
            "layer": _layer_column(layers[rows]),
            "role": calls["role"],
            "shapes": _shape_column(calls),
            "source": calls["source"],
            "comm": calls["comm"],
            ns: calls["dur"],
        }
    )


def grouped(left: pl.DataFrame, ns: str) -> pl.DataFrame:
    """The calls of one side that have no partner, those of one kernel and shapes together."""
    groups = left.group_by("kernel", "shapes").agg(calls=pl.len(), **{ns: pl.col(ns).sum()})
    return groups.sort(ns, "kernel", "shapes", descending=[True, False, False], nulls_last=True)


def _layer_column(layers: Ints) -> pl.Series:
    column = pl.Series(layers, dtype=pl.Int64)
    return column.set(column == OUTSIDE, None)


def _shape_column(calls: pl.DataFrame) -> pl.Series:
    return calls["shapes"].str.strip_chars('"')


def by(key: str, pairs: pl.DataFrame, missing: pl.DataFrame, extra: pl.DataFrame) -> pl.DataFrame:
    """Sums per family or layer: calls and times of both sides, the signed error, and what of it cancels inside."""
    whole = pl.concat(
        [
            pairs.select(key, "comm", "predicted_ns", "measured_ns", what=pl.lit("matched")),
            missing.select(key, "comm", "measured_ns", predicted_ns=pl.lit(0, dtype=pl.Int64), what=pl.lit("missing")),
            extra.select(key, "comm", "predicted_ns", measured_ns=pl.lit(0, dtype=pl.Int64), what=pl.lit("extra")),
        ],
        how="diagonal",
    )
    error = pl.col("predicted_ns") - pl.col("measured_ns")
    matched = pl.col("what") == "matched"
    table = whole.group_by(key).agg(
        *(((pl.col("what") == what).sum()).alias(what) for what in ("matched", "missing", "extra")),
        pl.col("predicted_ns").sum(),
        pl.col("measured_ns").sum(),
        error_ns=error.sum(),
        matched_error_ns=error.filter(matched).sum(),
        absolute_ns=error.abs().sum(),
        matched_measured_ns=pl.col("measured_ns").filter(matched).sum(),
        comm=pl.col("comm").any(),
    )
    return table.with_columns(
        error=_ratio("error_ns", "measured_ns"),
        matched_error=_ratio("matched_error_ns", "matched_measured_ns"),
        cancelled_ns=pl.col("absolute_ns") - pl.col("error_ns").abs(),
    ).drop("matched_measured_ns")


def _ratio(above: str, below: str) -> pl.Expr:
    return pl.when(pl.col(below) > 0).then(pl.col(above) / pl.col(below))


def by_shape(pairs: pl.DataFrame) -> pl.DataFrame:
    """Matched calls of one kernel and one set of shapes together; the largest sum of absolute errors first."""
    keys = ["kernel", "predicted_kernel", "family", "shapes"]
    table = pairs.group_by(keys).agg(
        calls=pl.len(),
        predicted_ns=pl.col("predicted_ns").sum(),
        measured_ns=pl.col("measured_ns").sum(),
        error_ns=pl.col("error_ns").sum(),
        absolute_ns=pl.col("error_ns").abs().sum(),
    )
    table = table.with_columns(error=_ratio("error_ns", "measured_ns"))
    return table.sort("absolute_ns", *keys, descending=[True, *[False] * len(keys)], nulls_last=True)


def communication(measured: PassSide, families: list[str]) -> pl.DataFrame:
    """Collectives of the measured pass: like ones (family, type, shapes) have a stable time, their median; the rest
    of each call is waiting for other ranks. Null where fewer than three are alike."""
    calls = measured.calls.with_columns(pl.Series("family", families, dtype=pl.String)).filter("comm")
    like = ["family", "kernel", "shapes"]
    middle = pl.col("dur").sort().get((pl.len() - 1) // 2)  # the lower one of two, a time that occurred
    table = calls.group_by(like, maintain_order=True).agg(
        calls=pl.len(),
        measured_ns=pl.col("dur").sum(),
        median_ns=middle,
        stable_ns=pl.when(pl.len() >= LIKE).then(pl.min_horizontal(pl.col("dur"), middle).sum()),
    )
    return table.with_columns(wait_ns=pl.col("measured_ns") - pl.col("stable_ns"))


@dataclass(frozen=True)
class CancellingPair:
    """A family that is too long beside one that is too short."""

    over: str
    over_ns: int
    under: str
    under_ns: int  # below zero
    cancels_ns: int


@dataclass(frozen=True)
class Cancelling:
    """Errors of families against one another: what is too long (`over`), too short (`under`), and what cancels."""

    net_ns: int
    over_ns: int
    under_ns: int
    absolute_ns: int  # over single calls, missing and extra ones with all their time
    pairs: tuple[CancellingPair, ...]

    @property
    def cancels_ns(self) -> int:
        return min(self.over_ns, self.under_ns)

    def table(self) -> Table:
        return Table(CANCELLING, pl.DataFrame(list(self.pairs), schema=CANCELLING.keys))

    def as_dict(self) -> dict[str, object]:
        return {
            "net_ns": self.net_ns,
            "over_ns": self.over_ns,
            "under_ns": self.under_ns,
            "cancels_ns": self.cancels_ns,
            "absolute_ns": self.absolute_ns,
            "pairs": self.table().rows(),
        }


def cancelling(families: pl.DataFrame) -> Cancelling:
    """The largest errors above zero set against the largest below, until one kind is used up."""
    errors = families.select("family", "error_ns").sort("error_ns", "family")
    over = [(name, ns) for name, ns in reversed(errors.rows()) if ns > 0]
    under = [(name, -ns) for name, ns in errors.rows() if ns < 0]
    pairs, above, below = [], list(over), list(under)
    while above and below:
        (long, x), (short, y) = above[0], below[0]
        both = min(x, y)
        pairs.append(CancellingPair(long, dict(over)[long], short, -dict(under)[short], both))
        above[0], below[0] = (long, x - both), (short, y - both)
        above, below = [a for a in above if a[1]], [b for b in below if b[1]]
    pairs.sort(key=lambda pair: -pair.cancels_ns)
    return Cancelling(
        net_ns=int(families["error_ns"].sum()),
        over_ns=sum(ns for _, ns in over),
        under_ns=sum(ns for _, ns in under),
        absolute_ns=int(families["absolute_ns"].sum()),
        pairs=tuple(pairs),
    )


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
    Column("error_stable", CHANGE, "predicted against the time without waits", title="error to that", optional=True),
)
LAYER = Column("layer", COUNT, "its number; null is what lies outside", absent="outside")
LAYERS = Columns("align.layers", "A layer, in order.", LAYER, *BY)
SHAPES = (
    Column("kernel", TEXT, "as measured"),
    Column("shapes", TEXT, "of its inputs, as measured"),
)
BY_SHAPE = Columns(
    "align.by_shape",
    "Matched calls of one kernel and shapes together, the largest sum of absolute errors first.",
    SHAPES[0],
    Column("predicted_kernel", TEXT, "as predicted", wide=True),
    Column("family", TEXT, "its family", wide=True),
    SHAPES[1],
    Column("calls", COUNT, "alike"),
    *SUMS,
    Column("absolute_ns", TIME, "errors of single calls without their signs, added up", wide=True),
    ERROR,
)
COMMUNICATION = Columns(
    "align.communication",
    "Like collectives of the measured pass.",
    Column("family", TEXT, "its family", wide=True),
    Column("kernel", TEXT, "as measured", title="collective"),
    SHAPES[1],
    Column("calls", COUNT, "alike"),
    Column("measured_ns", TIME, "of all of them", scale="time"),
    Column("median_ns", TIME, "of one"),
    Column("stable_ns", TIME, "without waiting; null for fewer than three", title="without waits"),
    Column("wait_ns", TIME, "the rest: waiting for other ranks", title="waiting"),
)
CANCELLING = Columns(
    "align.cancelling.pairs",
    "Two families whose errors cancel, the most first.",
    Column("over", TEXT, "the family that is predicted too long", title="too long"),
    Column("over_ns", TIME, "by how much", title="by"),
    Column("under", TEXT, "the family that is predicted too short", title="too short"),
    Column("under_ns", TIME, "by how much, below zero", title="by"),
    Column("cancels_ns", TIME, "of both"),
)
ONE_CALL = "a row per call, which only a program reads; `by_shape` is for people"
PAIRS = Columns(
    "align.kernels",
    "A matched call, in the measured order.",
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
    return Columns(place, about, *columns)


SOURCE = Column("source", TEXT, "where the predicted time comes from")
MISSING = _left_over("align.missing", "A call of the measured pass that the prediction does not have.", SUMS[1])
EXTRA = _left_over("align.extra", "A call that only the prediction has.", SOURCE, SUMS[0])
GROUPED = (*SHAPES, Column("calls", COUNT, "alike"))
MISSING_GROUPS = Columns("align.missing_by_shape", "The same, calls of one shape together.", *GROUPED, SUMS[1])
EXTRA_GROUPS = Columns("align.extra_by_shape", "The same, calls of one shape together.", *GROUPED, SUMS[0])
