"""How times and numbers read to people: three digits, the unit that fits, one unit per column."""

from __future__ import annotations

import re
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.table.columns import Column, Columns, Table
from npuscope.table.formats import (
    ARITHMETIC,
    BYTES,
    CAPACITY,
    NUMBER,
    TEXT,
    TIME,
    TIMES,
    TRAFFIC,
    Form,
    Unit,
    arithmetic,
    capacity,
    change_of_time,
    duration,
    figures,
    percent,
    quantity,
    significant,
    times,
    traffic,
    worded,
)

QUANTITIES = [TIMES, TRAFFIC, CAPACITY, ARITHMETIC]


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


def test_bytes_work_and_changes() -> None:
    assert (traffic(813_074_400), capacity(188_416), arithmetic(12_490_637_312)) == ("813 MB", "184 KiB", "12.5 GFLOP")
    assert (change_of_time(391_640), change_of_time(-65_920), change_of_time(0)) == ("+392 µs", "-65.9 µs", "0 ns")
    assert [times(ratio) for ratio in (1.0, 1.342, 0.2824, 12.34, None)] == ["1.00x", "1.34x", "0.282x", "12.3x", "–"]
    assert [percent(share) for share in (0.0, 0.722, 9.99, 175.155)] == ["0.0%", "72.2%", "999.0%", "17,516%"]


@given(st.floats(1, 1e15), st.sampled_from(QUANTITIES))
def test_a_quantity_is_near_the_value_in_a_unit_that_fits(value: float, units: tuple[Unit, ...]) -> None:
    number, unit = quantity(value, units).split(" ")
    worth = {one.name: one.worth for one in units}[unit]
    shown = float(number.replace(",", ""))
    assert shown * worth == pytest.approx(value, rel=0.0051)
    assert shown >= 0.97  # 1,000 B are 0.977 KiB, which three digits say better than 1,000 B
    assert shown < 1000 or unit == units[-1].name  # never 1000 µs
    assert shown >= 1000 or len(re.sub(r"\D", "", number).lstrip("0")) <= 3


@given(st.floats(-1e9, 1e9).filter(lambda value: abs(value) >= 1e-3))
def test_figures_keep_three_digits_and_their_zeros(value: float) -> None:
    text = figures(value)
    assert float(text.replace(",", "")) == pytest.approx(value, rel=0.0051)
    digits = re.sub(r"\D", "", text).lstrip("0")
    assert len(digits) == 3 or (abs(value) >= 999.5 and "." not in text)


def table(**columns: tuple[Form, list[Any]]) -> Table:
    declared = tuple(Column(key, form, "what it is") for key, (form, _) in columns.items())
    return Table(Columns("", "", declared), pl.DataFrame({key: values for key, (_, values) in columns.items()}))


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=20))
def test_a_column_of_times_has_one_unit_that_fits_its_largest_cell(values: list[int]) -> None:
    (shown,) = table(spent_ns=(TIME, list(values))).shown()
    assert shown.unit is not None
    assert shown.heading == f"spent {shown.unit.name}"
    largest = max(values) / shown.unit.worth
    assert largest < 1000 or shown.unit.name == "s"
    assert largest >= 0.999 or shown.unit.name == "ns"
    for value in values:
        cell = shown.cell(value)
        if cell.startswith("<"):
            assert 0 < value / shown.unit.worth < 0.0001
        else:
            assert float(cell.replace(",", "")) == pytest.approx(value / shown.unit.worth, rel=0.0051, abs=0.00005)


def test_points_stand_below_one_another_and_absent_cells_are_a_dash() -> None:
    found = table(kernel=(TEXT, ["a", "b", "c"]), spent_ns=(TIME, [3_463_080, 271_240, None]))
    assert found.lines() == ["  kernel  spent ms", "  a          3.46", "  b          0.271", "  c              –"]


def test_columns_of_one_scale_share_their_unit_so_that_they_can_be_compared() -> None:
    columns = Columns("", "", tuple(Column(key, TIME, "time", title=key, scale="wall") for key in ("A", "B")))
    assert [one.heading for one in Table(columns, pl.DataFrame({"A": [958_780], "B": [1_286_480]})).shown()] == [
        "A ms",
        "B ms",
    ]


def test_one_row_upright_has_a_unit_for_each_value() -> None:
    facts = table(window_ns=(TIME, [958_780]), read=(BYTES, [813_074_400]), in_flight=(NUMBER, [23.4])).facts()
    assert facts.frame.rows() == [("window", "959 µs"), ("read", "813 MB"), ("in flight", "23.4")]


def test_people_read_words_where_programs_read_keys() -> None:
    found = table(reason=(worded({"FIN": "waiting for the scheduler to notice an end"}), ["FIN", "other"]))
    assert [row[0] for row in found.cells()] == ["waiting for the scheduler to notice an end", "other"]
    assert found.rows() == [{"reason": "FIN"}, {"reason": "other"}]


def test_a_heading_that_does_not_say_enough_is_explained_below() -> None:
    columns = Columns("", "", (Column("core_ns", TIME, "added up over all cores", title="core time", explained=True),))
    found = Table(columns, pl.DataFrame({"core_ns": [5]}))
    assert found.lines()[-1] == "  core time: added up over all cores"
    assert len(found.lines(legend=False)) == 2
