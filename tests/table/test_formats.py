"""How times and numbers read to people: three digits, the unit that fits, one unit per column."""

import json
import re
from collections.abc import Callable
from pathlib import Path
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
    COUNT,
    NUMBER,
    TEXT,
    TIME,
    TIMES,
    TRAFFIC,
    WIDEST,
    Form,
    Unit,
    arithmetic,
    capacity,
    change,
    change_of_time,
    duration,
    figures,
    interval,
    percent,
    quantity,
    rough_percent,
    short_but_distinct,
    significant,
    times,
    traffic,
    worded,
)

QUANTITIES = [TIMES, TRAFFIC, CAPACITY, ARITHMETIC]


CASES = json.loads((Path(__file__).parent / "numbers.json").read_text())
FUNCTIONS: dict[str, Callable[[Any], str]] = {
    "duration": duration,
    "significant": significant,
    "figures": figures,
    "figures_in_column": TIME.show,
    "percent": percent,
    "change": change,
    "times": times,
    "whole": COUNT.show,
}


@pytest.mark.parametrize("name", CASES)
def test_numbers_read_as_they_read_on_a_page(name: str) -> None:
    """The cases of tests/lab/page/format.test.js."""
    assert [FUNCTIONS[name](value) for value, _ in CASES[name]] == [text for _, text in CASES[name]]


def test_bytes_work_intervals_and_what_is_no_number() -> None:
    assert (traffic(813_074_400), capacity(188_416), arithmetic(12_490_637_312)) == ("813 MB", "184 KiB", "12.5 GFLOP")
    assert (change_of_time(391_640), change_of_time(-65_920), change_of_time(0)) == ("+392 µs", "-65.9 µs", "0 ns")
    assert (interval(0.737, 1.5), interval(950, 1234)) == ("0.737 to 1.50", "950 to 1,234")
    assert [rough_percent(share) for share in (0.43, 0.0751, 0.9996)] == ["43%", "7.5%", "100%"]
    assert (duration(float("nan")), percent(float("nan"))) == ("–", "–")


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
    return Table(Columns("", "", *declared), pl.DataFrame({key: values for key, (_, values) in columns.items()}))


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
    columns = Columns("", "", *tuple(Column(key, TIME, "time", title=key, scale="wall") for key in ("A", "B")))
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
    columns = Columns(
        "",
        "",
        Column("core_ns", TIME, "added up over all cores", title="core time", explained=True),
    )
    found = Table(columns, pl.DataFrame({"core_ns": [5]}))
    assert found.lines()[-1] == "  core time: added up over all cores"
    assert len(found.lines(legend=False)) == 2


def test_names_that_are_cut_stay_different() -> None:
    # GIVEN templates that differ in their middle, which is what a table leaves out, one of them twice
    names = [f"void cutlass::gemm<float, {'A' * 40}, {n}, {'B' * 40}, true>" for n in (64, 128)]
    shown = short_but_distinct([*names, names[0], "silu"])
    assert len(set(shown)) == 3
    assert shown[0] == shown[2]
    assert all(len(name) <= WIDEST for name in shown)
    assert "64" in shown[0]
    # AND THEN what differs too far behind has a number
    far = [f"{'x' * 90}{c}{'y' * 90}{c * 2}{'z' * 90}" for c in "ab"]
    assert len({*short_but_distinct([*far, far[0] + far[1]])}) == 3
