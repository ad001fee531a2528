"""Decimal microseconds as text <-> integer nanoseconds, exactly.

A float64 is not a way station: at Ascend's epoch timestamps one unit in the last place is a quarter of
a microsecond.
"""

from __future__ import annotations

import polars as pl

LARGEST_US = 4_000_000_000_000_000  # the year 2096; a start and a duration of this size still fit an int64 together
LONGEST_US = 4_000_000_000_000  # 46 days: a duration beyond it is a broken record, and sums of such would overflow
EXACT_FLOAT_US = 9_007_199_254_740.0  # 2**53 ns: below it a float64 of microseconds is exact to the nanosecond


def ns_from_us(text: pl.Expr) -> pl.Expr:
    """Nanoseconds of decimal microseconds in text; null where the text is not such a number, or too large.

    Digits below the nanosecond round half to even; `needs_rounding` tells where that happened.
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
