"""Cutting, selecting and showing a Trace."""

from pathlib import Path

import polars as pl
import pytest
from builders import flow, kernel_row, write_events, write_kernel_table, x
from made import Task, made

import npuscope
from npuscope import Trace
from npuscope.trace import schema
from npuscope.trace.source import json_field


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    rows = [
        kernel_row(name="MatMul_1", start="10.000", dur="5.000", step="1"),
        kernel_row(name="Add_1", type="Add", start="20.000", dur="2.000", stream="3", step="1"),
        kernel_row(name="MatMul_2", start="30.000", dur="5.000", step="2"),
        kernel_row(name="hcom_allReduce_", type="hcom_allReduce_", core="HCCL", stream="N/A", start="34.000", step="2"),
    ]
    return npuscope.read(write_kernel_table(tmp_path / "k.csv", rows))


def test_every_table_has_the_columns_of_the_design(trace: Trace) -> None:
    assert dict(trace.slices.schema).items() >= schema.SLICES.items()
    assert dict(trace.lanes.schema) == schema.LANES
    assert dict(trace.edges.schema) == schema.EDGES
    assert {"Name", "Wait Time(us)", "Input Shapes"} <= set(trace.slices.columns)


def test_a_window_keeps_whole_slices_that_overlap_it_and_all_lanes(trace: Trace) -> None:
    cut = trace.window(12_000, 31_000)
    assert cut.slices["kernel"].to_list() == ["MatMul_1", "Add_1", "MatMul_2"]
    assert cut.window_ns == (12_000, 31_000)
    assert cut.lanes.height == trace.lanes.height
    assert cut.meta.dropped == {"outside the window": 1}


def test_select_by_name_kind_unit_and_step(trace: Trace) -> None:
    assert trace.select(kernel="^MatMul").slices.height == 2
    assert trace.select(kind="comm").slices["kernel"].to_list() == ["hcom_allReduce_"]
    assert trace.select(unit="stream", step=[1]).slices.height == 2
    assert trace.select(pl.col("dur") > 3_000, unit="stream").slices.height == 2
    assert trace.select(unit="link").lanes["name"].to_list() == ["communication"]


def test_edges_stay_only_between_slices_that_stay(tmp_path: Path) -> None:
    events = [x("a", 0, 10), x("b", 20, 10, tid=2), x("c", 40, 10, tid=3)]
    events += [*flow((1, 1, 5), (1, 2, 20)), *flow((1, 2, 25), (1, 3, 40), id=2)]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert trace.edges.select("src", "dst").rows() == [(0, 1), (1, 2)]
    assert trace.window(0, 35_000).edges.select("src", "dst").rows() == [(0, 1)]


@pytest.mark.parametrize(("name", "value"), [("stream", "7"), ('odd "name"', "[1,2]")])
def test_a_field_of_args_is_text_when_asked_for(tmp_path: Path, name: str, value: str) -> None:
    events = [x("a", 0, 1, args={"stream": 7, 'odd "name"': [1, 2]}), x("b", 1, 1)]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert json_field(trace.slices["args"], name).to_list() == [value, None]


def test_a_notebook_shows_a_small_table_and_escapes_names(tmp_path: Path) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [x("<script>alert(1)</script>", 0, 1)]))
    html = trace._repr_html_()
    assert "<table" in html
    assert "<script>" not in html
    assert "1 slices on 1 lanes" in repr(trace)


def test_edges_through_a_barrier_survive_a_cut() -> None:
    # GIVEN 1 -> 2 -> 3, of which 2 never runs
    trace = made(
        [Task(1, "a", "AIC_0", 0, 1), Task(3, "c", "AIC_0", 2, 3), Task(4, "d", "AIC_0", 8, 9)],
        [(1, 2), (2, 3), (3, 4)],
    )
    # WHEN
    cut = trace.window(0, 5_000)
    # THEN only the edge to what was cut away is gone
    assert cut.edges.select("src", "dst").rows() == [(1, 2), (2, 3)]
