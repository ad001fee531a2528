"""The scheduling ledger: the device's full core count, threads of the AICPU, waves and tails."""

from pathlib import Path

import polars as pl
import pytest
from made import US, Task, made

import npuscope
from npuscope import explain as analysis
from npuscope.trace import Trace


def test_cores_that_the_capture_does_not_show_count() -> None:
    # GIVEN one core seen of a device with four
    trace = made([Task(1, "a", "AIC_0", 0, 10, 0, 10)], num_cores=4)
    # WHEN / THEN the ledger is over four
    s = analysis.explain(trace).scheduling
    assert (s.cores, s.cores_seen) == (4, 1)
    assert dict(s.ledger.select("part", "core_ns").iter_rows()) == {"run": 10 * US, "cores not in the capture": 30 * US}
    # and where the capture does not tell, the caller may
    untold = made([Task(1, "a", "AIC_0", 0, 10, 0, 10)])
    assert analysis.explain(untold, cores=72).scheduling.cores == 72
    assert "does not say how many" in analysis.explain(untold).scheduling.notes[0]


def test_waves_and_tails_of_an_spmd_launch() -> None:
    # GIVEN five blocks on two cores: three on AIC_0 (0–10, 10–20, 20–28), two on AIC_1 (0–10, 10–18)
    times = [("AIC_0", 0, 10), ("AIC_0", 10, 20), ("AIC_0", 20, 28), ("AIC_1", 0, 10), ("AIC_1", 10, 18)]
    trace = made([Task(7, "gemm", lane, start, end) for lane, start, end in times])
    # WHEN / THEN three waves on two cores, a tail from 18, when AIC_1 had nothing left, to 28; 46 of 2 × 28 µs used
    row = analysis.explain(trace).scheduling.spmd.to_dicts()[0]
    assert (row["launches"], row["blocks"], row["width"], row["waves"], row["tail_ns"]) == (1, 5, 2, 3, 10 * US)
    assert row["tail_share"] == pytest.approx(10 / 28)
    assert row["efficiency"] == pytest.approx(46 / 56)


def test_blocks_in_waves_wait_for_cores_and_not_for_one_another() -> None:
    # GIVEN a launch of two blocks on one of two cores, and no task that waits for another
    tasks = [Task(7, "gemm", "AIC_0", 0, 10, 0, 10), Task(7, "gemm", "AIC_0", 10, 18, 10, 18)]
    trace = made(tasks, [(7, 8)], lanes=("AIC_0", "AIC_1"))
    # WHEN / THEN
    kinds = {cause.kind for cause in analysis.explain(trace).diagnosis.causes}
    assert kinds == {"core", "tail"}, "the second block waits for its core, and leaves the other one idle"


def test_inner_phases_of_a_thread_are_not_counted_twice() -> None:
    # GIVEN a scheduler thread: scheduling 0–50 around complete 5–15 and dispatch 20–40, and resolve 6–9 in complete
    phases = [("schedule", 0, 50), ("complete", 5, 15), ("resolve", 6, 9), ("dispatch", 20, 40)]
    trace = made([Task(1, "a", "AIC_0", 0, 50), *(Task(0, n, "AICPU_0", s, e) for n, s, e in phases)])
    kind = pl.when(pl.col("kernel") == "a").then(pl.lit("task")).otherwise(pl.lit("schedule"))
    trace = Trace.of(trace.slices.with_columns(kind=kind, phase="kernel"), trace.lanes, trace.meta)
    # WHEN / THEN each moment belongs to its innermost phase
    threads = dict(analysis.explain(trace).scheduling.threads.select("phase", "self_ns").iter_rows())
    assert threads == {"schedule": 20 * US, "complete": 7 * US, "resolve": 3 * US, "dispatch": 20 * US}


def test_threads_of_a_real_run_fit_into_the_window(shared: Path) -> None:
    s = analysis.explain(npuscope.read(shared / "simpler" / "swimlane" / "paged_attention_CaseVarSeq4")).scheduling
    per_thread = s.threads.group_by("thread").agg(pl.col("self_ns").sum())
    assert per_thread["thread"].sort().to_list() == ["Sched_0", "Sched_1", "Sched_2"]  # all was submitted before
    assert (per_thread["self_ns"] <= s.window_ns).all()
    assert {"complete", "dispatch", "release"} <= set(s.threads["phase"])
    # 64 tasks with a mean of run, head and tail that make up the whole
    parts = s.mean_dispatch_to_start_ns + s.mean_run_ns + s.mean_end_to_finish_ns  # type: ignore[operator]
    assert parts == pytest.approx(s.mean_dispatch_to_finish_ns)


def test_a_merged_swimlane_has_scheduler_and_orchestrator_threads(shared: Path) -> None:
    s = analysis.explain(npuscope.read(shared / "pypto" / "merged_swimlane_block_table.json")).scheduling
    assert {"scheduler", "orchestrator"} <= set(s.threads["role"])
    assert not s.threads["thread"].str.contains("AICPU View").any()


@pytest.mark.parametrize(
    ("tasks", "bound"),
    [
        # one core, back to back: the core is the bound
        ([Task(n, "a", "AIC_0", 10 * n, 10 * n + 10, 10 * n, 10 * n + 10) for n in range(1, 9)], "core"),
        # each waits for the one before on another core, and starts at once: dependencies
        ([Task(n, "a", f"AIC_{n % 2}", 10 * n, 10 * n + 10, 10 * n, 10 * n + 10) for n in range(1, 9)], "dependency"),
        # the same with 20 µs of waiting to be handed out each time
        ([Task(n, "a", f"AIC_{n % 2}", 30 * n, 30 * n + 10, 30 * n, 30 * n + 10) for n in range(1, 9)], "dispatch"),
        # short tasks on four cores, then one that goes on for long after the last has started
        (
            [
                *(Task(n, "a", f"AIC_{n % 4}", 2 * n, 2 * n + 2, 2 * n, 2 * n + 2) for n in range(1, 8)),
                Task(8, "a", "AIC_0", 16, 90, 16, 90),
            ],
            "tail",
        ),
    ],
)
def test_verdicts(tasks: list[Task], bound: str) -> None:
    edges = [(n, n + 1) for n in range(1, 8)] if bound != "core" else [(1, 8)]
    found = analysis.explain(made(tasks, edges)).diagnosis
    assert found.bound == bound
    assert sum(cause.share for cause in found.causes) == pytest.approx(1.0, abs=0.03)  # but for edges and small causes


def test_counters_tell_bandwidth_from_compute() -> None:
    # GIVEN busy cores whose counters say that data moved in for 80 % of the time and the cube ran for 30 %
    def run(moving: float, computing: float) -> Trace:
        cube = (("aic_mte2_ratio", str(moving)), ("aic_mac_ratio", str(computing)))
        ratios = (*cube, ("aiv_mte2_ratio", "0"), ("aiv_vec_ratio", "0"))
        return made([Task(n, "MatMul", "stream_0", 10 * n, 10 * n + 9, more=ratios) for n in range(5)])

    assert analysis.explain(run(0.8, 0.3)).diagnosis.bound == "bandwidth"
    assert analysis.explain(run(0.3, 0.8)).diagnosis.bound == "core"


def test_busy_cores_are_the_bound_whatever_the_path_says() -> None:
    # GIVEN two waves on two cube cores that are never idle, and two tiny vector tasks that depend on each other
    waves = [Task(n, "gemm", f"AIC_{n % 2}", 50 * (n // 2), 50 * (n // 2) + 50) for n in range(4)]
    tiny = [Task(8, "a", "AIV_0", 0, 1), Task(9, "b", "AIV_0", 2, 3)]
    # WHEN / THEN
    verdict = analysis.explain(made([*waves, *tiny], [(8, 9)])).diagnosis.verdict
    assert str(verdict) == "Work runs on full cores for 100 µs (100.0% of the time); `gemm` is 100 µs of it."
    assert verdict.remedy.startswith("Nothing to gain here but from kernels themselves.")


def test_a_training_step_full_of_collectives_is_communication_bound(shared: Path) -> None:
    folder = shared / "ascend" / "msinsight_cnn" / "level0" / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    e = analysis.explain(npuscope.read(folder / "kernel_details.csv"))
    assert str(e.diagnosis.verdict) == (
        "Communication that no compute hides takes 81.5 ms (70.1% of the time): one `hcom_allReduce` takes 73 ms "
        "where 5.16 ms is usual, as if it waited for another rank."
    )
    assert e.communication is not None
    # step_trace_time.csv says Overlapped 4001.282 µs
    assert e.communication.hidden_ns == pytest.approx(4_001_282, abs=20)


def test_time_behind_a_running_task_is_queueing() -> None:
    # GIVEN a task handed out at 2 to a core that is busy until 10
    tasks = [Task(1, "a", "AIC_0", 0, 10, 0, 11), Task(2, "a", "AIC_0", 11, 20, 2, 21)]
    s = analysis.explain(made(tasks)).scheduling
    assert s.mean_queued_ns == 4 * US  # 8 of the second, none of the first
    assert s.queued == pytest.approx(8 / 30)


def test_in_flight_of_a_cut_counts_what_lies_inside() -> None:
    trace = made([Task(1, "a", "AIC_0", 0, 1000, 0, 1000)]).window(500 * US, 510 * US)
    assert analysis.explain(trace).scheduling.in_flight == pytest.approx(1.0)


def test_stamps_that_contradict_themselves_are_left_out_and_counted() -> None:
    # GIVEN a task that was dispatched after its start, and one that was seen to finish before its end
    tasks = [
        Task(1, "a", "AIC_0", 0, 10, 0, 12),
        Task(2, "a", "AIC_0", 20, 30, 25, 31),
        Task(3, "a", "AIC_0", 40, 50, 39, 45),
    ]
    s = analysis.explain(made(tasks)).scheduling
    assert (s.stamped, s.mean_dispatch_to_finish_ns) == (1, 12 * US)
    assert s.overhead == pytest.approx(2 / 12)
    assert any(note.startswith("2 tasks were dispatched after their start") for note in s.notes)


def test_one_task_is_at_most_one_in_flight() -> None:
    # GIVEN a task of 10 µs that was handed out 10 before and seen to end 2 after: 22 µs in a window of 10
    assert analysis.explain(made([Task(1, "a", "AIC_0", 10, 20, 0, 22)])).scheduling.in_flight == 1.0
