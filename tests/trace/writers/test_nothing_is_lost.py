"""A capture that was written and read again says the same verdict, busy and core time; or `left_out` names the loss."""

from __future__ import annotations

from pathlib import Path

import pytest
from builders import kernel_row, write_kernel_table
from made import Task, made

import npuscope
from npuscope import explain as analysis
from npuscope.explain.choosing import split_ranks
from npuscope.trace import Trace

REAL = [
    "ascend/longcat_910c/kernel_details.csv",
    "ascend/msinsight_cnn/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
    "ascend/msinsight_cnn_db/level2/ascend_pytorch_profiler_0.db",
    "ascend/npu_mfu_sample/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    "gpu/hta_timeline_int_us_rank0.json.gz",
    "gpu/tracelens_sglang_qwen3_8b_decode.json.gz",
    "gpu/tracelens_h100_qwen1.5_0.5b.json.gz",
    "pypto/merged_swimlane_block_table.json",
    "pypto/esl_proxy_paged_attention_single_buffer.json",
    "simpler/swimlane/bgemm_Case1_L4",
]


def said(trace: Trace) -> list[tuple[object, ...]]:
    """Per rank: verdict, when anything ran, core time by unit, edges between tasks."""
    found: list[tuple[object, ...]] = []
    for part in split_ranks(trace):
        e = analysis.explain(part.trace)
        units = sorted(e.busy.units.select("unit", "lanes", "busy_ns").rows())
        found.append((part.rank, part.device, e.diagnosis.verdict.sentence, e.busy.running, units))
    return found


@pytest.mark.full
@pytest.mark.parametrize("name", REAL)
def test_real_captures_come_back_from_chrome_json(shared: Path, tmp_path: Path, name: str) -> None:
    trace = npuscope.read(shared / name)
    left_out = trace.write(tmp_path / "out.json.gz")
    back = npuscope.read(tmp_path / "out.json.gz")
    assert said(back) == said(trace)
    assert back.edges.height + sum(left_out.values()) == trace.edges.height


def cores() -> Trace:
    tasks = [Task(1, "qk", "AIC_3", 0, 10, 0, 11), Task(2, "softmax", "AIV_5", 12, 20, 11, 21)]
    return made(tasks, [(1, 2)])


def test_units_cores_stamps_and_edges_come_back(tmp_path: Path) -> None:
    trace = cores()
    assert trace.write(tmp_path / "t.json") == {}
    back = npuscope.read(tmp_path / "t.json")
    assert said(back) == said(trace)
    columns = ["task", "dispatch", "finish"]
    assert back.slices.select(columns).rows() == trace.slices.select(columns).rows()
    assert (
        back.lanes.select("unit", "core", "device", "rank").rows()
        == trace.lanes.select("unit", "core", "device", "rank").rows()
    )
    assert back.edges.select("src", "dst", "source").rows() == trace.edges.select("src", "dst", "source").rows()


def test_ranks_devices_and_duplicate_marks_come_back(tmp_path: Path) -> None:
    for rank in (0, 1):
        out = tmp_path / "root" / f"rank{rank}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        out.mkdir(parents=True)
        logical = kernel_row(name="HcomAllReduce_6_0_1", type="HcomAllReduce", core="COMMUNICATION", stream="N/A")
        physical = kernel_row(name="AivKernel", type="HcomAllReduce", core="COMMUNICATION", stream="165")
        write_kernel_table(out / "kernel_details.csv", [logical, physical])
    trace = npuscope.read(tmp_path / "root")
    assert trace.slices["duplicate_of"].count() == 2
    trace.write(tmp_path / "t.json")
    back = npuscope.read(tmp_path / "t.json")
    assert said(back) == said(trace)
    assert back.slices["duplicate_of"].count() == 2


def test_a_table_names_what_it_has_no_room_for(tmp_path: Path) -> None:
    left_out = cores().write(tmp_path / "t.csv")
    assert left_out == {"edge": 1, "core of a lane": 2, "time of dispatch or finish": 4}
