"""Numbers that others measured too: real captures with known truths, and a run built to the figures of an issue."""

from pathlib import Path

import polars as pl
import pytest
from builders import write_swimlane
from made import Task, made

import npuscope
from npuscope import explain as analysis
from npuscope.trace import Trace
from npuscope.trace.schema import counts_once, is_work


@pytest.fixture(scope="module")
def longcat(shared: Path) -> Trace:
    return npuscope.read(shared / "ascend" / "longcat_910c" / "kernel_details.csv")


def test_longcat_steps(longcat: Trace) -> None:
    found = analysis.explain(longcat).steps
    # span, plain sum and union of each step, in microseconds, as the data's README has them
    table = found.table.select("step", "span_ns", "sum_ns", "union_ns").rows()
    assert [(step, *(ns / 1000 for ns in rest)) for step, *rest in table] == [
        (3, 25_626.192, 40_046.106, 21_986.120),
        (4, 10_665.893, 12_377.587, 8_289.886),
        (5, 10_718.174, 12_192.518, 8_232.082),
        (6, 11_124.982, 13_167.382, 8_716.095),
        (7, 10_402.628, 11_848.971, 8_049.657),
    ]
    # the first step is the outlier, 25,626 over the median of the others, (10,665.893 + 10,718.174) / 2
    assert found.outliers == [3]
    assert found.first_penalty == pytest.approx(25_626.192 / 10_692.0335)
    assert found.source == "column"
    # 28 attentions a step, two in each layer
    assert found.layers == 14


def test_longcat_counts_work_once(longcat: Trace) -> None:
    busy = analysis.explain(longcat).busy
    assert busy.window_ns == 71_502_028
    kernels = {row["kernel"]: row for row in busy.kernels.to_dicts()}
    # FIA: 140 on MIX_AIC, 28 per step, its tilings on the AI CPU not counted
    assert kernels["FusedInferAttentionScore"]["count"] == 140
    assert kernels["FusedInferAttentionScore"]["core_ns"] == 5_433_707
    # all-reduces are listed twice: 145 of them, and the longest counts once
    assert kernels["HcomAllReduce"]["count"] == 145
    # without the 150 duplicates of collectives and the AI CPU: 21,779.816 µs in step 3
    work = longcat.select(counts_once() & (pl.col("Accelerator Core") != "AI_CPU"), step=3)
    assert int(work.slices["dur"].sum()) == 21_779_816


def test_t1_agrees_with_six_other_tools(shared: Path) -> None:
    trace = npuscope.read(shared / "gpu" / "hta_t1_df_index_resolver.json.gz")
    busy = analysis.explain(trace).busy
    start, end = trace.select(is_work()).span
    assert (busy.on_core_ns, end - start) == (1_000_613_000, 1_732_965_000)
    assert busy.window_ns == 1_737_902_000  # the first step begins 4.9 ms before its first kernel


def test_layers_of_a_single_decode_step_are_found(shared: Path) -> None:
    found = analysis.explain(npuscope.read(shared / "gpu" / "tracelens_sglang_qwen3_8b_decode.json.gz")).steps
    assert (found.source, found.layers) == ("column", 36)  # Qwen3-8B has 36 layers
    told = found.table.select("step", "phase", "tokens", "slices").rows()
    # execute_32_context_0(…)_generation_32(…), with all of a graph's kernels; a fill 463 ms before them is not its
    assert told == [(0, "decode", 32, 557)]


TASKS, WALL_US, RUN_US, CORES = 38_705, 356_000, 45, 72


def test_a_run_with_the_figures_of_the_a8w8_issue_is_dispatch_bound(tmp_path: Path) -> None:
    # GIVEN 38,705 tasks a step on 24 cube and 48 vector cores, 45 µs mean run, 61 µs from dispatch to finish, 356 ms
    # in all; handed out evenly, 10 µs before they start and seen 6 µs after they end
    ticks = 50  # per microsecond
    rows, seen = [], []
    for n in range(TASKS):
        begin = round(1000 + n * (WALL_US - RUN_US) * ticks / (TASKS - 1))
        run = RUN_US * ticks + (500 if n % 2 else -500) * (n != TASKS - 1)
        core = n % CORES
        rows.append([core, n, n // CORES + 1, begin, begin + run, 0])
        seen.append([core, n // CORES + 1, begin - 10 * ticks, begin + run + 6 * ticks])
    cores = {"clock_freq_hz": 50_000_000, "num_cores": CORES, "core_types": ["aic"] * 24 + ["aiv"] * 48}
    trace = npuscope.read(write_swimlane(tmp_path, rows, seen, metadata=cores))
    # WHEN
    e = analysis.explain(trace)
    # THEN overhead is 16 of 61 µs, 38,705 × 61 µs are 6.6 tasks in flight, and dispatch is the bound
    s = e.scheduling
    assert s.tasks == TASKS
    assert s.mean_run_ns == pytest.approx(45_000, abs=10)
    assert s.mean_dispatch_to_finish_ns == pytest.approx(61_000, abs=10)
    assert s.overhead == pytest.approx(0.262, abs=0.001)
    assert s.in_flight == pytest.approx(6.63, abs=0.01)
    assert s.cores == 72
    assert e.work.wall == pytest.approx(356_000_000, abs=1000)
    assert e.diagnosis.bound == "dispatch"
    assert str(e.diagnosis.verdict) == (
        "Only 6.63 of 72 cores have a task in hand on average: the scheduler hands out one task every 9.2 µs."
    )


def test_a_task_queue_that_keeps_cores_busy_is_core_bound() -> None:
    # GIVEN the same task sizes, but cores that never wait long: what the dispatch verdict must not be given for
    tasks = [
        Task(100 * core + n, "gemm", f"AIC_{core}", 50 * n, 50 * n + 45, 50 * n - 3, 50 * n + 46)
        for core in range(4)
        for n in range(20)
    ]
    assert analysis.explain(made(tasks)).diagnosis.bound == "core"
