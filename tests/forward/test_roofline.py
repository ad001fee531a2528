"""Rooflines of traces: what is priced adds up, what is not is counted, and real captures stay below the limits."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import KERNEL_HEADER, kernel_row, named, write_events, write_kernel_table, x
from written_passes import a_pass

import npuscope
from npuscope import NpuscopeError
from npuscope.explain.passes import passes
from npuscope.forward.align import align
from npuscope.forward.roofline import roofline
from npuscope.trace.example import write_decode_steps
from npuscope.trace.schema import counts_once

HEADER = [*KERNEL_HEADER, "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types", "Output Formats"]


def table(tmp_path: Path, *rows: dict[str, str]) -> npuscope.Trace:
    return npuscope.read(write_kernel_table(tmp_path / "kernel_details.csv", list(rows), HEADER))


def matmul(start: float, dur: float, step: int = 1, m: int = 16) -> dict[str, str]:
    return {
        **kernel_row(start=f"{start:.3f}\t", dur=f"{dur:.3f}", step=str(step), type="MatMulV2", name="mm",
                     shapes=f'"{m},5120;5120,768"'),
        "Input Data Types": "DT_BF16;DT_BF16", "Input Formats": "ND;ND",
        "Output Shapes": f'"{m},768"', "Output Data Types": "DT_BF16", "Output Formats": "ND",
    }  # fmt: skip


def test_what_a_kernel_loses_per_step(tmp_path: Path) -> None:
    # GIVEN two steps with two matmuls each, of 10 and 12 µs, whose weights take 4.577 µs of memory at the least
    rows = [matmul(100, 10, 1), matmul(200, 12, 1), matmul(300, 10, 2), matmul(400, 12, 2)]
    found = roofline(table(tmp_path, *rows), "a3")
    # THEN
    limit = 2 * (16 * 5120 + 5120 * 768 + 16 * 768) / 1.759218604e12 * 1e9
    (row,) = found.calls.to_dicts()
    assert (row["kernel"], row["family"], row["count"], row["measured_ns"]) == ("MatMulV2", "gemm", 4, 44_000)
    assert row["limit_ns"] == pytest.approx(limit)
    assert row["bound"] == "memory"
    assert row["efficiency"] == pytest.approx(4 * limit / 44_000)
    assert found.steps == 2
    assert row["lost_ns"] == pytest.approx((44_000 - 4 * limit) / 2)


def test_shapes_are_told_apart_and_the_largest_loss_comes_first(tmp_path: Path) -> None:
    found = roofline(table(tmp_path, matmul(0, 10), matmul(20, 10), matmul(40, 100, m=32)), "a3")
    assert found.calls["shapes"].to_list() == ["32,5120;5120,768", "16,5120;5120,768"]
    assert found.calls["count"].to_list() == [1, 2]


def test_too_little_with_a_limit_judges_nothing(tmp_path: Path) -> None:
    # GIVEN 10 µs of a product, and 4,990 of a collective whose message is not recorded: 0.2 %
    other = kernel_row(start="20.000\t", dur="4990.000", type="hcom_allReduce_", core="HCCL", shapes="N/A", name="c")
    sentence = roofline(table(tmp_path, matmul(0, 10), other), "a3").sentence()
    assert sentence.startswith("0.2% of the kernels' time has a known limit")
    assert "of the chip's limits" not in sentence


def test_rows_without_a_price_are_counted_with_their_reasons(tmp_path: Path) -> None:
    rows = [
        matmul(0, 10),
        kernel_row(start="20.000\t", dur="30.000", type="hcom_allReduce_", core="HCCL", shapes="N/A", name="c"),
        kernel_row(start="60.000\t", dur="50.000", type="Cumsum", core="AI_CPU", shapes='"4;1"', name="cumsum"),
    ]
    found = roofline(table(tmp_path, *rows), "a3")
    assert found.unknown().select("why", "count", "measured_ns").rows() == [
        ("runs on the AI CPU, whose rate no device file has", 1, 50_000),
        ("message size not recorded", 1, 30_000),
    ]
    assert found.unknown()["share"].to_list() == pytest.approx([50 / 90, 30 / 90])
    assert found.priced["kernel"].to_list() == ["MatMulV2"]
    assert found.as_dict()["measured_ns"] == 90_000


@pytest.mark.parametrize("shapes", ["16,many;5120,768", "16,99999999999999999999;5120,768", "16,5120;5120,768 (paged)"])
def test_shapes_that_are_no_numbers_have_no_price(tmp_path: Path, shapes: str) -> None:
    found = roofline(table(tmp_path, {**matmul(0, 10), "Input Shapes": f'"{shapes}"'}), "a3")
    assert found.unknown()["why"].to_list() == ["a shape is not made of numbers"]


def test_a_kernel_faster_than_memory_allows_is_shown_and_not_clipped(tmp_path: Path) -> None:
    found = roofline(table(tmp_path, matmul(0, 1)), "a3")
    assert found.above["efficiency"].item() > 4
    assert found.calls["lost_ns"].item() < 0


def test_a_limit_that_is_beaten_by_more_than_a_cache_explains_is_wrong(tmp_path: Path) -> None:
    # GIVEN 356 MB of weights in 119 µs, 3 TB/s: 1.7 times what the memory gives, and more than L2 (192 MiB) holds
    large = matmul(0, 119)
    large |= {"Input Shapes": '"16,5120;5120,34816"', "Output Shapes": '"16,34816"'}
    found = roofline(table(tmp_path, large), "a3")
    assert found.impossible["efficiency"].item() == pytest.approx(1.71, abs=0.01)
    assert "another device, or these limits are wrong" in found.sentence()
    # AND a small product that L2 may hold is only remarked on
    assert roofline(table(tmp_path, matmul(0, 1)), "a3").impossible.is_empty()


def test_the_demo_beats_no_chip(tmp_path: Path) -> None:
    write_decode_steps(tmp_path / "kernel_details.csv")
    found = roofline(npuscope.read(tmp_path / "kernel_details.csv"), "a3")
    assert found.above.is_empty()
    gemm = found.families().filter(pl.col("family") == "gemm")
    assert 0.8 < gemm["efficiency"].item() < 0.95


def test_a_trace_without_kernels_is_an_empty_answer(tmp_path: Path) -> None:
    found = roofline(table(tmp_path, matmul(0, 1)).select(pl.lit(False)), "a3")
    assert found.calls.is_empty()
    assert found.efficiency is None
    assert "no kernel of this capture has a known limit" in str(found)


def test_a_device_must_be_told_where_the_capture_does_not(tmp_path: Path) -> None:
    with pytest.raises(NpuscopeError, match=r"does not tell its device.*--device: a3"):
        roofline(table(tmp_path, matmul(0, 1)))
    with pytest.raises(NpuscopeError, match="context is -1"):
        roofline(table(tmp_path, matmul(0, 1)), "a3", context=-1)


# ---- GPU


def gpu(
    tmp_path: Path, *, old: bool = False, device: str | None = "NVIDIA H100 80GB HBM3", shapes: bool = True
) -> Path:
    """aten::linear around aten::mm, which launches two kernels; and an all-reduce of two ranks."""
    dims = {"Input Dims": [[128, 1024], [1024, 512]], "Input type": ["c10::BFloat16", "c10::BFloat16"]}
    kernel = {"cat": "kernel", "pid": 0, "tid": 7}
    events = [
        *named("python", "thread 1", pid=1, tid=1),
        x("aten::linear", 0, 100, cat="cpu_op", args={"External id": 1, **dims} if shapes else {}),
        x("aten::mm", 10, 50, cat="cpu_op", args={"External id": 2, **dims} if shapes else {"External id": 2}),
        x("cudaLaunchKernel", 20, 2, cat="cuda_runtime", args={"correlation": 77}),
        x("cudaLaunchKernel", 30, 2, cat="cuda_runtime", args={"correlation": 78}),
        x("sm90_xmma_gemm_bf16", 200, 40, **kernel, args={"External id": 77 if old else 2, "correlation": 77}),
        x("splitKreduce_kernel", 240, 10, **kernel, args={"External id": 78 if old else 2, "correlation": 78}),
        x("ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 300, 50, **kernel,
          args={"In msg nelems": 1_000_000, "dtype": "BFloat16", "Group size": 2, "correlation": 79}),
        x("Memset (Device)", 400, 5, cat="gpu_memset", pid=0, tid=7, args={"bytes": 4096, "correlation": 80}),
    ]  # fmt: skip
    properties = [] if device is None else [{"id": 0, "name": device}]
    return write_events(tmp_path / "trace.json", events, schemaVersion=1, deviceProperties=properties)


@pytest.mark.parametrize("old", [False, True])
def test_a_gpu_kernel_has_the_shapes_of_the_operator_that_launched_it(tmp_path: Path, old: bool) -> None:
    found = roofline(npuscope.read(gpu(tmp_path, old=old)))
    assert found.device.name == "h100"
    assert "NVIDIA H100 80GB HBM3" in found.chosen_by
    rows = {row["kernel"]: row for row in found.calls.to_dicts()}
    mm = rows["aten::mm"]
    # both kernels of the operator are its time; the longer one gives the name
    assert (mm["measured_ns"], mm["count"], mm["name"]) == (50_000, 1, "sm90_xmma_gemm_bf16")
    assert mm["flops"] == 2 * 128 * 1024 * 512
    # an all-reduce of 2 MB between two ranks: 2 · 1/2 · 2 MB over 450 GB/s
    reduce = rows["ncclDevKernel_AllReduce_Sum_bf16_RING_LL"]
    assert (reduce["bound"], reduce["limit_ns"]) == ("link", pytest.approx(2e6 / 450e9 * 1e9))
    assert rows["Memset (Device)"]["bytes"] == 4096
    assert sum(row["measured_ns"] for row in rows.values()) == 105_000


def test_a_gpu_trace_without_shapes_is_all_unknown(tmp_path: Path) -> None:
    found = roofline(npuscope.read(gpu(tmp_path, shapes=False)))
    assert "sm90_xmma_gemm_bf16" in found.unknown()["kernels"].explode().to_list()


def test_a_gpu_nobody_knows_is_named(tmp_path: Path) -> None:
    with pytest.raises(NpuscopeError, match="says its device is 'Tesla V100'"):
        roofline(npuscope.read(gpu(tmp_path, device="Tesla V100")))


# ---- real captures


def test_longcat(shared: Path) -> None:
    trace = npuscope.read(shared / "ascend" / "longcat_910c" / "kernel_details.csv")
    found = roofline(trace, "a3")
    rows = {(row["kernel"], row["shapes"]): row for row in found.calls.to_dicts()}
    # the sum of rows without duplicates (README): 25,677.337 + 11,735.993 + 11,688.487 + 12,171.204 + 11,426.463 µs,
    # less the 290 duplicates that the trace marks beyond collectives: FIA's tilings, 18,081.354 µs
    assert found.measured_ns == 72_699_484 - 18_081_354
    assert (found.steps, found.left_out) == (5, 290)
    # 28 attentions a step have no context; 28 products of 4×6144×3072 read 18.9 MB each
    assert "context not given" in found.unknown()["why"].to_list()
    down = rows["QuantBatchMatmulV3", "4,6144;96,384,16,32;3072;4"]
    assert (down["count"], down["flops"], down["bound"]) == (140, 2 * 4 * 6144 * 3072, "memory")
    assert down["bytes"] == 4 * 6144 + 6144 * 3072 + 2 * 3072 + 4 * 4 + 2 * 4 * 3072
    assert found.above.is_empty()
    assert 0.2 < (found.efficiency or 0) < 0.5
    # the parts add up
    families = found.families()
    assert families["step_ns"].sum() * 5 == pytest.approx(found.measured_ns)
    assert families["lost_ns"].sum() == pytest.approx(found.priced["lost_ns"].sum())
    with_context = roofline(trace, "a3", context=2000)
    attention = with_context.calls.filter(pl.col("kernel") == "FusedInferAttentionScore").row(0, named=True)
    assert attention["flops"] == 2 * 4 * 2001 * 8 * (512 + 64 + 512)
    assert 0.05 < attention["efficiency"] < 0.5


def test_the_h100_and_the_mi300x_name_themselves(shared: Path) -> None:
    h100 = roofline(npuscope.read(shared / "gpu" / "tracelens_h100_qwen1.5_0.5b.json.gz"))
    assert h100.device.name == "h100"
    assert h100.above.is_empty()
    gemm = h100.families().filter(family="gemm").row(0, named=True)
    assert 0.5 < gemm["efficiency"] < 0.8
    mi300x = roofline(npuscope.read(shared / "gpu" / "tracelens_sglang_qwen3_8b_decode.json.gz"))
    # a replayed graph: its kernels have no operators, so nearly nothing can be priced
    assert mi300x.device.name == "mi300x"
    assert mi300x.unknown()["share"].sum() > 0.95


def test_collectives_of_a_database_have_their_sizes(shared: Path) -> None:
    trace = npuscope.read(shared / "ascend" / "msinsight_cnn_db" / "level2" / "ascend_pytorch_profiler_0.db")
    found = roofline(trace, "910b1", ranks=8).calls.filter(pl.col("family") == "collective")
    # four all-reduces of fp32: 4,097,000, 16,781,312, 37,752,832 and 2,469,696 elements
    assert sorted(found["bytes"].to_list()) == [4 * n for n in (2_469_696, 4_097_000, 16_781_312, 37_752_832)]
    assert set(found["bound"]) == {"link"}


def test_every_capture_is_answered_and_all_its_time_is_accounted_for(any_capture: Path) -> None:
    trace = npuscope.read(any_capture)
    found = roofline(trace, "a3", context=1000, ranks=8)
    work = trace.slices.filter(counts_once())
    assert found.measured_ns == work["dur"].sum()
    priced = int(found.priced["measured_ns"].sum()) + int(found.unknown()["measured_ns"].sum())
    assert priced == found.measured_ns
    numbers = found.calls.select("flops", "bytes", "limit_ns", "efficiency", "lost_ns").cast(pl.Float64)
    assert numbers.select(pl.all_horizontal(pl.all().is_finite() | pl.all().is_null()).all()).item()
    assert found.calls.filter(pl.col("limit_ns").is_null())["why"].null_count() == 0


@pytest.mark.parametrize("column", ["Accelerator Core", "Task Type", "taskType"])
def test_it_is_left_out_everywhere(column: str) -> None:
    layer = [("MatMulV2", 10.0), ("FusedInferAttentionScore", 20.0), ("SwiGlu", 5.0)]
    calls = [("GatherV2", 3.0), *layer * 4, ("Cumsum", 50.0), ("ArgMaxV2", 4.0)]
    cores = {column: ["AI_CPU" if kernel == "Cumsum" else "AI_VECTOR_CORE" for kernel, _ in calls]}
    trace = a_pass(calls, cores)
    found: Any = passes(trace).as_dict()
    (told,) = found["passes"]
    assert (told["aicpu_ns"], told["sum_ns"]) == (50_000, (3 + 4 * 35 + 4) * 1000)
    reasons = dict(roofline(trace, "a3").calls.select("kernel", "why").iter_rows())
    assert reasons["Cumsum"] == "runs on the AI CPU, whose rate no device file has"
    assert align(trace, trace).measured.left_out == {"AI_CPU": (1, 50_000)}
