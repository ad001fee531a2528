"""Decimal microseconds as text <-> integer nanoseconds, exactly.

A float64 is not a way station: at Ascend's epoch timestamps one unit in the last place is a quarter of
a microsecond.
"""

from __future__ import annotations

import polars as pl

LARGEST_US = 9_000_000_000_000_000  # whole microseconds whose nanoseconds still fit an int64
EXACT_FLOAT_US = 9_007_199_254_740.0  # 2**53 ns: below it a float64 of microseconds is exact to the nanosecond


def ns_from_us(text: pl.Expr) -> pl.Expr:
    """Nanoseconds of decimal microseconds in text; null where the text is not such a number.

    More than three decimals round half away from zero; `needs_rounding` tells where that happened.
    """
    text = text.str.strip_chars()
    negative = text.str.starts_with("-")
    whole, fraction = _split(text)
    micros = whole.cast(pl.Int64, strict=False).abs()
    digits = pl.when(fraction.is_null()).then(pl.lit("0000")).otherwise(fraction.str.pad_end(4, "0"))
    plain = fraction.is_null() | fraction.str.contains(r"^[0-9]*$")
    tenths = digits.str.slice(0, 4).cast(pl.Int64, strict=False)
    nanos = micros * 1000 + (tenths + 5) // 10
    signed = pl.when(negative).then(-nanos).otherwise(nanos)
    return pl.when(plain & (micros <= LARGEST_US)).then(signed).otherwise(None)


def needs_rounding(text: pl.Expr) -> pl.Expr:
    """True where the text says something below the nanosecond; the noise of a float64 printed in full does not."""
    _, fraction = _split(text.str.strip_chars())
    below = fraction.str.slice(3)
    return (below.str.contains("[1-9]") & ~below.str.contains("^(000000|999999)")).fill_null(False)


def us_from_ns(nanos: pl.Expr) -> pl.Expr:
    """Text of microseconds with three decimals."""
    size = nanos.abs()
    sign = pl.when(nanos < 0).then(pl.lit("-")).otherwise(pl.lit(""))
    return pl.concat_str(sign, (size // 1000).cast(pl.String), pl.lit("."), (size % 1000).cast(pl.String).str.zfill(3))


def _split(text: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    parts = text.str.splitn(".", 2)
    return parts.struct.field("field_0"), parts.struct.field("field_1")
