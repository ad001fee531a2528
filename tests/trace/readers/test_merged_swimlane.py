"""Swimlane JSON for Perfetto, in the dialects that are around."""

from pathlib import Path

import polars as pl
import pytest
from builders import named, write_events, x

import npuscope
from npuscope.trace.intervals import one_group
from npuscope.trace.intervals import union as union_of

REAL = {
    # file: tasks, lanes, span, sum (µs); from the captures' README
    "esl_proxy_qwen3_single_buffer": (3096, 72, 4065.90, 69_926.30),
    "esl_proxy_qwen3_double_buffer": (3096, 72, 3582.56, 70_249.82),
    "esl_proxy_paged_attention_single_buffer": (1920, 72, 2915.38, 80_126.06),
    "esl_proxy_paged_attention_double_buffer": (1920, 72, 2458.04, 80_199.46),
    "merged_swimlane_block_table": (32, 27, 149.00, 1705.70),
    "simpler_bgemm_fullcore": (480, 72, None, None),
}


@pytest.mark.parametrize("name", REAL)
def test_real_swimlanes_have_their_known_tasks(shared: Path, name: str) -> None:
    tasks, lanes, span, total = REAL[name]
    cores = npuscope.read(shared / "pypto" / f"{name}.json").select(unit=["AIC", "AIV"], kind="task")
    assert (cores.slices.height, cores.slices["lane"].n_unique()) == (tasks, lanes)
    if span is not None:
        assert (cores.span[1] - cores.span[0]) / 1000 == pytest.approx(span, abs=1e-9)
        assert cores.slices["dur"].sum() / 1000 == pytest.approx(total, abs=1e-9)


def test_kernels_of_the_qwen3_swimlane(shared: Path) -> None:
    trace = npuscope.read(shared / "pypto/esl_proxy_qwen3_single_buffer.json")
    counts = dict(trace.slices["kernel"].value_counts().iter_rows())
    assert {counts[k] for k in ("qk_matmul", "softmax", "sv_matmul", "online_softmax")} == {360}
    assert (counts["out_proj"], counts["q_proj"], counts["rope_kv_cache"]) == (240, 120, 90)
    _, start, dur = trace.arrays()
    assert union_of(one_group(start, start + dur)).length == 4_052_640


def test_scheduler_and_orchestrator_of_the_block_table_run(shared: Path) -> None:
    trace = npuscope.read(shared / "pypto/merged_swimlane_block_table.json")
    rows = trace.slices.join(trace.lanes, on="lane")
    scheduler = rows.filter(pl.col("process") == "AICPU Scheduler")
    assert (scheduler.height, (scheduler["kernel"] == "idle").sum()) == (1380, 1341)
    assert rows.filter(pl.col("process") == "AICPU Orchestrator")["dur"].sum() == 29_960
    seen = rows.filter(pl.col("process") == "AICPU View")
    assert seen["dur"].sum() == 1_816_320
    # the scheduler's view gave every core slice its dispatch and finish
    tasks = trace.select(unit=["AIC", "AIV"]).slices
    assert (tasks["finish"] - tasks["dispatch"]).sum() == 1_816_320
    assert dict(trace.edges["name"].value_counts().iter_rows()) == {
        "dependency": 16,
        "dispatch": 32,
        "fanin→dispatch": 32,
    }


def test_a_bar_that_begins_at_receive_is_moved_to_the_kernels_start(tmp_path: Path) -> None:
    args = {"taskId": 4294967296, "kernel-duration-us": 9.5, "local_setup_us": 0.5}
    events = [*named("Worker View", "AIC_0"), x("GEMM(r1t0)", 100.0, 10.0, args=args)]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert trace.slices.select("kernel", "start", "dur", "receive", "task", "label").row(0) == (
        "GEMM", 100_500, 9_500, 100_000, 4294967296, "GEMM(r1t0)",
    )  # fmt: skip
    assert trace.meta.repaired == {"bar began at receive, moved to the kernel's start": 1}


def test_process_names_count_never_pids(tmp_path: Path) -> None:
    # in one dialect pid 4 is the Worker View, in another the orchestrator
    events = [
        *named("AICPU Orchestrator", "Orch_0", pid=4),
        *named("AICore View", "AIV_3", pid=9),
        x("submit(t0)", 0, 1, pid=4),
        x("qk(t0)", 2, 1, pid=9),
    ]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert dict(zip(trace.slices["kernel"], trace.slices["kind"], strict=True)) == {"submit": "schedule", "qk": "task"}
