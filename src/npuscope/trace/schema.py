"""The columns every Trace has, whatever it was read from, and its times: integer nanoseconds.

Text of decimal microseconds is converted exactly. A float64 is no way there: at Ascend's epoch timestamps one unit in
the last place is a quarter of a microsecond.
"""

from __future__ import annotations

import polars as pl

# copy: bytes that engines move, without a core
# derived: spans that describe other rows (annotations, Overlap Analysis) and are not work themselves
KINDS = pl.Enum(["task", "comm", "copy", "schedule", "host", "derived"])
COPY_CORE = "MEMCPY"  # of copies in kernel tables that npuscope writes; the profiler leaves copies out
# counter: a place that has only counters, such as the HBM of a device; nothing runs there
UNITS = pl.Enum(["AIC", "AIV", "AICPU", "stream", "host", "link", "counter"])

SLICES: dict[str, pl.DataType] = {
    "lane": pl.UInt32(),  # row of `lanes`
    "start": pl.Int64(),
    "dur": pl.Int64(),
    "kernel": pl.String(),
    "kind": KINDS,
    "depth": pl.UInt32(),  # how many slices of the same lane were open when this one began
    "task": pl.Int64(),  # the capture's task id where it has one that is a key, else the record's number
    "block": pl.Int32(),
    "dispatch": pl.Int64(),
    "finish": pl.Int64(),
    "step": pl.Int64(),
    "duplicate_of": pl.Int64(),  # the `task` that this row lists a second time; null for a row that counts
}

LANES: dict[str, pl.DataType] = {
    "lane": pl.UInt32(),
    "name": pl.String(),
    "unit": UNITS,
    "core": pl.Int32(),
    "device": pl.Int32(),
    "rank": pl.Int32(),
}

EDGES: dict[str, pl.DataType] = {
    "src": pl.Int64(),  # null where the capture has only the other end
    "dst": pl.Int64(),
    "source": pl.String(),  # tensormap, creator, explicit, flow, correlation, signal
}
SIGNAL = "signal"  # of an edge: a task waited, while it ran, until a task of another rank had told it
SIGNALS: dict[str, pl.DataType] = {  # such edges say more
    **EDGES,
    "since": pl.Int64(),  # when it began to wait
    "late_ns": pl.Int64(),  # until the signal was sent
}

COUNTERS: dict[str, pl.DataType] = {
    "lane": pl.UInt32(),  # row of `lanes`, through which it has a device and a rank; null for the whole device
    "name": pl.String(),
    "time": pl.Int64(),
    "value": pl.Float64(),  # from `time` until the next sample of this lane and name
}


def is_work() -> pl.Expr:
    """True for what the device did: tasks, communication and copies, duplicates too."""
    return pl.col("kind").is_in(["task", "comm", "copy"])


def counts_once() -> pl.Expr:
    """True for the device's work without duplicates."""
    return is_work() & pl.col("duplicate_of").is_null()


def cases(*choices: tuple[pl.Expr, pl.Expr | str], otherwise: pl.Expr | str) -> pl.Expr:
    """The value of the first condition that holds; text is text, not a column."""
    value = pl.lit(otherwise) if isinstance(otherwise, str) else otherwise
    for condition, chosen in reversed(choices):
        value = pl.when(condition).then(pl.lit(chosen) if isinstance(chosen, str) else chosen).otherwise(value)
    return value


def conform(frame: pl.DataFrame, schema: dict[str, pl.DataType]) -> pl.DataFrame:
    """The schema's columns first and typed, absent ones null, every other column after them as it is."""
    missing = [pl.lit(None, dtype=dtype).alias(name) for name, dtype in schema.items() if name not in frame.columns]
    frame = frame.with_columns(missing)
    casts = [pl.col(name).cast(dtype) for name, dtype in schema.items() if frame.schema[name] != dtype]
    frame = frame.with_columns(casts)
    return frame.select([*schema, *(c for c in frame.columns if c not in schema)])


LARGEST_US = 4_000_000_000_000_000  # the year 2096; a start and a duration of this size still fit an int64 together
LONGEST_US = 4_000_000_000_000  # 46 days: a duration beyond it is a broken record, and sums of such would overflow
EXACT_FLOAT_US = 9_007_199_254_740.0  # 2**53 ns: below it a float64 of microseconds is exact to the nanosecond


def ns_from_us(text: pl.Expr) -> pl.Expr:
    """Nanoseconds of decimal microseconds in text; null where the text is not such a number, or too large.

    Digits below the nanosecond round half to even; `needs_rounding` says where that happened.
    """
    # a fixed-point number of three places is a whole number of nanoseconds underneath
    exact = text.str.strip_chars().cast(pl.Decimal(38, 3), strict=False).to_physical().cast(pl.Int64, strict=False)
    return pl.when(exact.is_between(-LARGEST_US * 1000, LARGEST_US * 1000)).then(exact)


def needs_rounding(text: pl.Expr) -> pl.Expr:
    """True where the text says something below the nanosecond; the noise of a float64 printed in full does not."""
    says = text.str.contains(r"\.\d{3}\d*[1-9]") & ~text.str.contains(r"\.\d{3}(000000|999999)")
    return says.fill_null(False)


def us_from_ns(nanos: pl.Expr) -> pl.Expr:
    """Text of microseconds with three decimals."""
    size = nanos.abs()
    sign = pl.when(nanos < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return pl.concat_str(sign, (size // 1000).cast(pl.String), pl.lit("."), (size % 1000).cast(pl.String).str.zfill(3))
