"""A predicted pass: its sum, its layers, where its numbers come from, and that more work is never faster."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.chip.devices import load
from npuscope.forward.llm.config import pass_settings, read_config
from npuscope.forward.llm.prediction import PassPrediction, predict, predicted_trace
from npuscope.trace import read
from npuscope.trace.names import with_tensors

CONFIGS = Path(__file__).resolve().parents[2] / "data" / "configs"
NAMES = sorted(path.stem for path in CONFIGS.glob("*.json"))


def predicted(name: str, phase: str = "decode", device: str = "a3", **options: object) -> PassPrediction:
    model = read_config(CONFIGS / f"{name}.json")
    return predict(model, pass_settings(model, phase, **options), load(device))  # type: ignore[arg-type]


def test_layers_but_the_first_are_alike_and_add_up() -> None:
    result = predicted("qwen3_32b", batch=16, context=4096, tp=16)
    calls = result.calls()
    layers = calls.drop_nulls("layer").group_by("layer", maintain_order=True).agg(pl.col("ns").sum())
    first, *rest = layers["ns"].to_list()
    outside = int(calls.filter(calls["layer"].is_null())["ns"].sum())
    assert len(set(rest)) == 1
    assert first + 63 * rest[0] + outside == result.total_ns


def test_qwen3_32b_decode_is_close_to_the_measured_kernels() -> None:
    """facts/measured.md §4. These kernels were calibrated on; understand/trust_forward.md has the honest errors."""
    calls = predicted("qwen3_32b", batch=16, context=4848, tp=16).frame()
    each = {row["role"]: row["each_ns"] / 1000 for row in calls.to_dicts()}
    measured = {"qkv": 11.04, "o": 8.63, "gate_up": 32.12, "down": 18.76, "lm_head": 86.60, "attention": 61.19}
    for role, us in measured.items():
        assert each[role] == pytest.approx(us, rel=0.10), role
    assert each["o reduce"] == pytest.approx(20.2)


def test_sources_add_up_and_unknown_kernels_have_no_time() -> None:
    result = predicted("deepseek_v3", batch=5, context=4096, tp=8, dp=2, quant="w8a8")
    told: Any = result.as_dict()
    assert sum(s["ns"] for s in told["sources"].values()) == told["total_ns"]
    assert sum(s["calls"] for s in told["sources"].values()) == told["calls"] == len(result.kernels)
    assert told["sources"]["UNKNOWN"] == {"calls": 3, "ns": 0}
    assert [(row["kernel"], row["calls"]) for row in told["unknown"]] == [("hcom_", 3)]


def test_a_device_without_calibration_gives_its_limit() -> None:
    result = predicted("qwen3_32b", device="ascend910b1", batch=16, context=4096, tp=8)
    assert set(result.by_source()) == {"ANALYTIC", "UNKNOWN"}
    # what it computes is not known, and on this device nobody measured it
    assert result.tables()["unknown"].frame["kernel"].to_list() == ["DSARandomUniform"]
    assert result.total_ns == sum(e.limit_ns or 0 for e in result.estimates)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("phase", ["decode", "prefill"])
@pytest.mark.parametrize("quant", ["none", "w8a8"])
def test_every_family_is_priced_whole_but_for_what_it_lists(name: str, phase: str, quant: str) -> None:
    tokens = None if phase == "decode" else 512
    result = predicted(name, phase, batch=4, context=1000, tokens=tokens, tp=4, quant=quant)
    assert result.total_ns > 0
    assert result.unknown == 0
    for e in result.estimates:
        assert e.ns is not None
        assert e.limit_ns is not None
        assert e.ns >= e.limit_ns


@given(batch=st.integers(1, 200), context=st.integers(0, 40_000), more=st.integers(1, 20_000))
def test_a_longer_context_is_never_faster(batch: int, context: int, more: int) -> None:
    short = predicted("qwen3_32b", batch=batch, context=context, tp=16)
    long = predicted("qwen3_32b", batch=batch, context=context + more, tp=16)
    assert long.total_ns >= short.total_ns


@given(batch=st.integers(1, 200), factor=st.integers(2, 4))
def test_a_larger_batch_is_never_faster(batch: int, factor: int) -> None:
    small = predicted("qwen3_32b", batch=batch, context=2000, tp=16)
    large = predicted("qwen3_32b", batch=batch * factor, context=2000, tp=16)
    assert large.total_ns >= small.total_ns


@pytest.mark.parametrize("ending", ["npu", "csv", "csv.gz", "json", "pftrace"])
def test_every_writer_takes_a_prediction(ending: str, tmp_path: Path) -> None:
    trace = predicted_trace(predicted("qwen3_32b", batch=16, context=4096, tp=16))
    path = tmp_path / f"pass.{ending}"
    assert trace.write(path) == {}
    assert path.exists()
    if ending == "pftrace":
        return  # write only
    back = read(path)
    for column in ("start", "dur", "kernel"):
        assert back.slices[column].to_list() == trace.slices[column].to_list()


def test_a_prediction_comes_back_from_its_own_folder_and_from_a_kernel_table(tmp_path: Path) -> None:
    trace = predicted_trace(predicted("deepseek_v3", batch=5, context=4096, tp=8, dp=2, quant="w8a8"))
    for ending in ("npu", "csv"):
        trace.write(tmp_path / f"pass.{ending}")
        back = read(tmp_path / f"pass.{ending}")
        for column in ("Type", "Input Shapes", "Output Data Types", "role", "Source", "Accelerator Core", "kind"):
            assert back.slices[column].to_list() == trace.slices[column].to_list(), column
        told = back.slices["layer"].cast(str).to_list()
        assert told == [("N/A" if ending == "csv" else None) if n is None else str(n) for n in trace.slices["layer"]]
        assert (
            with_tensors(back.slices)["input_shapes"].to_list() == with_tensors(trace.slices)["input_shapes"].to_list()
        )
    assert back.slices["duplicate_of"].null_count() == back.slices.height


def test_slices_follow_one_another_from_zero() -> None:
    result = predicted("qwen3_32b", batch=16, context=4096, tp=16)
    slices = predicted_trace(result).slices
    ends = (slices["start"] + slices["dur"]).to_list()
    assert slices["start"].to_list() == [0, *ends[:-1]]
    assert ends[-1] == result.total_ns
    assert set(slices.filter(slices["kernel"].str.starts_with("hcom"))["kind"]) == {"comm"}
