"""Microseconds in text become nanoseconds without a detour through a float."""

from __future__ import annotations

from decimal import ROUND_HALF_EVEN, Decimal

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.trace.schema import needs_rounding, ns_from_us, us_from_ns


def ns(text: str) -> int | None:
    return pl.select(ns_from_us(pl.lit(text))).item()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1779440805781809.542\t", 1_779_440_805_781_809_542),  # float64 would be 42 ns off
        ("1699529622790614.8", 1_699_529_622_790_614_800),  # 2023: as few digits as needed
        ("308926", 308_926_000),
        ("-0.5", -500),
        ("27.9605625", 27_961),  # digits below the nanosecond round
        ("4.2999999999999545", 4_300),  # a float64 printed in full
        ("0", 0),
    ],
)
def test_text_of_the_profilers_is_read_exactly(text: str, expected: int) -> None:
    assert ns(text) == expected


@pytest.mark.parametrize(
    "text", ["N/A", "", "12a", "1.2.3", "1.-5", "99999999999999999999", "9999999999999999.0", "nan"]
)
def test_what_is_not_a_time_is_null(text: str) -> None:
    assert ns(text) is None


@given(st.integers(-(10**15), 10**15), st.text("0123456789", max_size=9))
def test_any_decimal_equals_exact_arithmetic(whole: int, fraction: str) -> None:
    text = f"{whole}.{fraction}" if fraction else str(whole)
    exact = (Decimal(text) * 1000).quantize(Decimal(1), rounding=ROUND_HALF_EVEN)
    assert ns(text) == int(exact)


@given(st.integers(-(10**18), 4 * 10**18))
def test_nanoseconds_survive_the_way_to_text_and_back(nanoseconds: int) -> None:
    text = pl.select(us_from_ns(pl.lit(nanoseconds, dtype=pl.Int64))).item()
    assert ns(text) == nanoseconds


@pytest.mark.parametrize(
    ("text", "said"), [("1.2345", True), ("1.2340000000001", False), ("1.2339999999", False), ("1.23", False)]
)
def test_rounding_is_reported_only_where_something_was_said(text: str, said: bool) -> None:
    assert pl.select(needs_rounding(pl.lit(text))).item() is said
