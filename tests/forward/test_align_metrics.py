"""Predictions that tell where their times come from, and the modelling tool's own metrics of them."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from builders import write_events, x
from written_passes import MEASURED, PREDICTED, a_pass

import npuscope
from npuscope import NpuscopeError
from npuscope.forward.align.alignment import align, m6_denominator
from npuscope.forward.align.sides import side_of

US = 1000


def tensorcast(path: Path, events: list[tuple[str, int, dict[str, str]]]) -> Path:
    """A trace as TensorCast writes one: whole microseconds, facts as text."""
    now, rows = 0, []
    for name, us, args in events:
        told = {"simulation_shapes": "[[16, 512], [512, 768]]", **args}
        rows.append(x(name, now, us, pid=0, tid=0, cat="empirical", args=told))
        now += us
    return write_events(path, rows)


def test_a_tensorcast_trace_tells_sources_and_the_metrics_follow(tmp_path: Path) -> None:
    # GIVEN five calls: two measured, one interpolated, one analytic, and a view that costs nothing
    hit, guess = {"source": "MEASURED", "kernel_type": "MatMulV2"}, {"source": "ANALYTIC", "kernel_type": "SwiGlu"}
    path = tensorcast(
        tmp_path / "tc.json",
        [
            ("aten.mm.default", 10, hit),
            ("aten.mm.default", 12, {**hit, "simulation_shapes": "[[16, 512], [512, 512]]"}),
            ("tensor_cast.rms_norm.default", 3, {"source": "INTERPOLATED", "kernel_type": "RmsNorm"}),
            ("tensor_cast.swiglu.default", 2, guess),
            ("aten.view.default", 0, {"source": "MEASURED", "zero_cost": "True"}),
        ],
    )
    measured = a_pass([("MatMulV2", 11.0), ("MatMulV2", 11.0), ("RmsNorm", 5.0), ("SwiGlu", 5.0)])
    found = align(npuscope.read(path), measured)
    m = found.metrics
    assert (found.pairs.height, found.missing.height, found.extra.height) == (4, 0, 0)
    assert found.predicted.left_out == {"takes no time, and the other side has no such kernel": (1, 0)}
    assert m.values["m1"] == 4 / 5  # four of five calls
    assert m.values["m2"] == 3 / 4  # mm, rms_norm, view of four functions
    assert m.values["m3"] == 2 / 3  # without the view
    assert m.values["m4"] == 3 / 4  # two shapes of mm and rms_norm, of four
    assert m.values["m5"] is None
    assert "analytic" in m.reasons["m5"]
    assert m.values["m6"] == 25 / 32


def test_a_function_with_one_missed_shape_is_missed_and_a_fused_group_counts_once(tmp_path: Path) -> None:
    hit, miss = {"source": "MEASURED"}, {"source": "PARTIAL"}
    names = [
        "aten.mm.default",
        "aten.mm.default",
        "tensor_cast.grouped_matmul.default",
        "tensor_cast.all_to_all.default",
    ]
    path = tensorcast(tmp_path / "tc.json", list(zip(names, [1, 1, 1, 1], [hit, miss, hit, hit], strict=True)))
    found = align(npuscope.read(path), a_pass([("MatMul", 1.0)])).metrics
    assert (found.values["m1"], found.values["m2"]) == (3 / 4, 1 / 2)


def test_a_composite_that_lists_its_kernels_is_taken_apart(tmp_path: Path) -> None:
    parts = {
        "source": "MEASURED",
        "kernel_type": "BatchMatMulV2, Transpose",
        "sub_kernel_durations": "[('BatchMatMulV2', 8.6), ('Transpose', 17.1)]",
    }
    path = tensorcast(tmp_path / "tc.json", [("tensor_cast.multihead_latent_attention.default", 26, parts)])
    found = align(npuscope.read(path), a_pass([("BatchMatMulV2", 9.0), ("Transpose", 17.0)]))
    assert found.pairs["predicted_ns"].to_list() == [8600, 17100]
    assert found.metrics.values["m6"] == 1.0  # its tool adds up events: 26 over 26


def test_spans_around_others_are_left_out_and_rounding_is_no_nesting(tmp_path: Path) -> None:
    # GIVEN a step around its kernels; MatMul from 10.6 to 13.2 and Cast to 13.8, in whole microseconds
    events = [
        x("step", 0, 30),
        x("RmsNorm", 0, 10),
        x("MatMul", 11, 3),
        x("Cast", 13, 1),
        x("Add", 20, 5),
        x("Add", 20, 5),
    ]
    side = side_of(npuscope.read(write_events(tmp_path / "nested.json", events)), "prediction")
    assert side.calls["kernel"].to_list() == ["RmsNorm", "MatMul", "Cast", "Add", "Add"]
    assert side.left_out == {"encloses other spans": (1, 30 * US)}


@pytest.mark.parametrize("ending", ["npu", "json"])
def test_a_prediction_keeps_what_it_knows_through_a_file(tmp_path: Path, ending: str) -> None:
    facts = {"layer": [0] * 8 + [1] * 4, "Source": ["MEASURED"] * 11 + ["UNKNOWN"], "limit_ns": [1000] * 12}
    prediction = a_pass(PREDICTED, facts)
    prediction.write(tmp_path / f"p.{ending}")
    direct, read = (align(p, a_pass(MEASURED)) for p in (prediction, npuscope.read(tmp_path / f"p.{ending}")))
    assert read.layer_source == "the prediction's layer column"
    assert read.pairs.equals(direct.pairs)
    assert (read.metrics.values["m1"], read.metrics.values["m5"], read.metrics.values["m6"]) == (
        11 / 12,
        11 / 12,
        direct.metrics.values["m6"],
    )


def test_of_several_models_in_one_trace_the_one_with_sources_is_meant(tmp_path: Path) -> None:
    shapes = {"simulation_shapes": "[[1]]"}
    events = [
        x("aten.mm.default", 0, 50, pid=0, args=shapes),
        x("aten.mm.default", 0, 10, pid=1, args={**shapes, "source": "MEASURED", "kernel_type": "MatMulV2"}),
    ]
    path = write_events(tmp_path / "two.json", events)
    measured = a_pass([("MatMulV2", 10.0)])
    assert align(npuscope.read(path), measured).predicted.sum_ns == 10 * US
    assert align(npuscope.read(path), measured, process="0").predicted.sum_ns == 50 * US
    path = write_events(tmp_path / "same.json", [{**event, "args": shapes} for event in events])
    with pytest.raises(NpuscopeError, match="several models' processes"):
        align(npuscope.read(path), measured)


def test_m5_is_the_share_of_the_limit_that_hits() -> None:
    facts = {"Source": ["MEASURED", "ANALYTIC", "UNKNOWN"], "limit_ns": [6000, 2000, None]}
    found = align(a_pass([("MatMul", 9.0), ("Add", 3.0), ("Odd", 0.0)], facts), a_pass([("MatMul", 9.0), ("Add", 3.0)]))
    assert found.metrics.values["m5"] == 0.75
    assert "1 calls without limit_ns" in found.metrics.reasons["m5"]
    assert found.metrics.values["m1"] == pytest.approx(1 / 3)
    assert found.metrics.values["m6"] == pytest.approx(9 / 12)  # only what was measured


def test_m6_adds_up_rows_as_its_tool_does() -> None:
    # hcom_ rows of one whole microsecond and type count once, the longest; AicpuKernel not; everything else does
    rows = pl.DataFrame(
        {
            "start": [1_000_100, 1_000_900, 1_001_000, 5_000, 6_000, 7_000],
            "dur": [10, 30, 5, 100, 1000, 1000],
            "type": [*["hcom_allReduce_"] * 3, "allgatherAicpuKernel", *["HcomAllReduce"] * 2],
            "kernel": [""] * 6,
        }
    )
    assert m6_denominator(rows) == 30 + 5 + 2000
