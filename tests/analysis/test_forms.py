"""How times and numbers read to people: three digits, the unit that fits."""

import pytest

from npuscope.analysis.forms import duration, significant


@pytest.mark.parametrize(
    ("ns", "told"),
    [
        (0, "0 ns"),
        (7, "7 ns"),
        (999, "999 ns"),
        (999.6, "1 µs"),
        (1_000, "1 µs"),
        (12_345, "12.3 µs"),
        (21_660, "21.7 µs"),
        (999_499, "999 µs"),
        (999_500, "1 ms"),
        (-1_234_567, "-1.23 ms"),
        (5_853_866_420, "5.85 s"),
        (7_200_000_000_000, "7,200 s"),
        (None, "–"),
        (float("nan"), "–"),
    ],
)
def test_a_duration_has_three_digits_and_a_unit_that_fits(ns: float | None, told: str) -> None:
    assert duration(ns) == told


@pytest.mark.parametrize(
    ("value", "told"), [(0.99999, "1"), (0.001234, "0.00123"), (11.70, "11.7"), (123456, "123,456")]
)
def test_three_significant_digits(value: float, told: str) -> None:
    assert significant(value) == told
