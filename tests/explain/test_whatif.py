"""Replays of a measured task graph with a change."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import DEPENDS, DOZEN, US, Task, dozen, made
from runs import launches

import npuscope
from npuscope import NpuscopeError
from npuscope import explain as analysis
from npuscope.explain import Change, whatif


def test_no_change_says_how_well_the_replay_knows_the_run() -> None:
    found = whatif(dozen(), Change())
    # with tasks on their cores the drawn run replays exactly
    assert found.new_ns == 100 * US
    # free to choose, up takes AIC_1 at 54 and all that follows ends 6 µs earlier: that is the error
    assert found.replay_error == pytest.approx(-0.06)
    assert (found.low_ns, found.high_ns) == (94 * US, 106 * US)


def test_a_free_scheduler_saves_its_waits_on_the_path() -> None:
    # 25 µs of the path are waits for the scheduler; without them 75 µs of runs remain where tasks keep their cores,
    # and 74 where they go to the first free one
    found = whatif(dozen(), Change(dispatch_cost=0.0))
    assert found.new_ns == 74 * US
    assert found.low_ns <= 75 * US <= found.high_ns


def test_merged_tasks_run_one_after_another_and_are_handed_out_once() -> None:
    # GIVEN a on AIC_0 and b on AIC_1, each 10 µs and 4 µs late, then c, which needs both
    tasks = [
        Task(1, "gate_proj", "AIC_0", 0, 10, 0, 10),
        Task(2, "up_proj", "AIC_1", 0, 10, 0, 10),
        Task(3, "silu", "AIV_0", 12, 20, 12, 20),
    ]
    trace = made(tasks, [(1, 3), (2, 3)])
    # WHEN both become one task of 20 µs THEN c starts 2 µs after that
    found = whatif(trace, Change(merge=[("gate_proj", "up_proj")]))
    assert (found.new_ns, found.tasks) == (30 * US, (3, 2))


def test_merging_saves_the_waits_between_two_dependent_tasks() -> None:
    tasks = [Task(1, "a", "AIC_0", 0, 10, 0, 11), Task(2, "b", "AIC_0", 15, 25, 14, 26)]
    found = whatif(made(tasks, [(1, 2)]), Change(merge=[("a", "b")]))
    assert found.new_ns == 20 * US


def test_halving_makes_half_as_many_tasks_with_the_work_of_two() -> None:
    # GIVEN four tasks of 10 µs on one core, each handed out 5 µs after the core was free
    tasks = [Task(n, "a", "AIC_0", 15 * n, 15 * n + 10, 15 * n - 1, 15 * n + 10) for n in range(4)]
    trace = made([*tasks, Task(9, "b", "AIV_0", 0, 1, 0, 1)], [(9, 3)])
    # WHEN / THEN two tasks of 20 µs and one wait: 0–20, 25–45
    found = whatif(trace, Change(halve=["a"]))
    assert (found.measured_ns, found.new_ns, found.tasks) == (55 * US, 45 * US, (5, 3))
    # at best the remaining waits shrink too, as a queue's would
    assert found.low_ns == pytest.approx((40 + 5 * 3 / 5) * US)


def test_removing_keeps_the_order_of_what_is_left() -> None:
    # up is on the path: without it silu follows gate, which ends at 50, and down follows silu
    found = whatif(dozen(), Change(remove=["up"]))
    assert found.new_ns < 90 * US
    assert found.tasks == (12, 11)


def test_more_cores_help_where_cores_are_short() -> None:
    # GIVEN eight independent tasks of 10 µs on two cores, and one task that needs all of them
    tasks = [
        Task(n, "a", f"AIC_{n % 2}", 10 * (n // 2), 10 * (n // 2) + 10, 10 * (n // 2), 10 * (n // 2) + 10)
        for n in range(8)
    ]
    trace = made([*tasks, Task(8, "b", "AIV_0", 40, 45, 40, 45)], [(n, 8) for n in range(8)])
    assert whatif(trace, Change(cores={"AIC": 4})).new_ns == 25 * US
    assert whatif(trace, Change(cores={"AIC": 1})).new_ns == 85 * US


def test_a_merge_that_would_wait_for_itself_is_refused() -> None:
    # down needs silu, which needs up: the two cannot be one task
    with pytest.raises(NpuscopeError, match=r"merging up\+down would make a task wait for itself"):
        whatif(dozen(), Change(merge=[("up", "down")]))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (Change(scale={"nothing": 0.5}), "no kernel matches"),
        (Change(scale={"up": -1.0}), "must be between"),
        (Change(scale={"up": float("nan")}), "must be between"),
        (Change(merge=[("up", "silu")]), "different units"),
        (Change(merge=[("up", "up")]), "same kernel"),
        (Change(cores={"GPU": 3}), "no unit 'GPU'"),
        (Change(cores={"AIC": 0}), "cannot run anything"),
    ],
)
def test_changes_that_make_no_sense_are_refused(change: Change, told: str) -> None:
    with pytest.raises(NpuscopeError, match=told):
        whatif(dozen(), change)


def test_without_edges_the_interval_says_what_is_not_known() -> None:
    # GIVEN a then b on two streams; whether b waited for a is not told
    trace = made([Task(1, "a", "stream_0", 0, 10), Task(2, "b", "stream_1", 12, 20)])
    found = whatif(trace, Change(scale={"a": 0.5}))
    assert (found.low_ns, found.high_ns) == (15 * US, 20 * US)
    assert found.notes[0].startswith("No edges")
    assert "→ between 15 µs and 20 µs" in str(found)
    # whose waits were the scheduler's is not told either
    cheaper = whatif(trace, Change(dispatch_cost=0.0))
    assert cheaper.high_ns == 20 * US
    # and merging would need to know who waits for whom
    with pytest.raises(NpuscopeError, match=r"need dependencies.*no edges"):
        whatif(trace, Change(merge=[("a", "b")]))


def test_hand_outs_of_a_scheduler_are_no_launches_of_a_host() -> None:
    # GIVEN ten tasks back to back on a core, with dispatch times and without edges
    tasks = [Task(n, "a", "AIC_0", 10 * n, 10 * n + 10, 10 * n - 3, 10 * n + 11) for n in range(10)]
    # WHEN they take half the time THEN so does the run
    assert whatif(made(tasks), Change(scale={"a": 0.5})).new_ns == 50 * US


def test_blocks_of_a_launch_keep_their_places_among_other_tasks() -> None:
    # GIVEN a launch with a block at 0–10 and one at 30–40, behind another task on its core
    tasks = [Task(1, "a", "AIC_0", 0, 10), Task(1, "a", "AIC_1", 30, 40), Task(2, "b", "AIC_1", 5, 25)]
    tasks += [Task(3, "c", "AIC_0", 45, 50)]
    assert whatif(made(tasks, [(1, 3)]), Change()).new_ns == 50 * US


@given(launches())
def test_any_run_replays_exactly_on_its_cores(trace: npuscope.Trace) -> None:
    found = whatif(trace, Change())
    assert found.new_ns == found.measured_ns
    assert found.low_ns <= found.new_ns <= found.high_ns


@given(launches(), st.sampled_from(["k0", "k1", "k2"]))
def test_a_free_kernel_saves_no_more_than_its_time_on_the_path(trace: npuscope.Trace, kernel: str) -> None:
    if kernel not in trace.slices["kernel"].to_list():
        return
    path = analysis.explain(trace).path
    told: Any = path.as_dict()
    bound = told["bound"]["kernels"].get(kernel, 0)
    found = whatif(trace, Change(scale={kernel: 0.0}))
    assert found.measured_ns - found.new_ns <= bound


@given(st.integers(1, 6), st.integers(1, 30), st.floats(0.1, 3.0))
def test_a_chain_scales_as_its_kernels_do(length: int, run: int, factor: float) -> None:
    # GIVEN tasks that wait for one another on alternating cores without delay
    tasks = [Task(n, "a", f"AIC_{n % 2}", n * run, (n + 1) * run, n * run, (n + 1) * run) for n in range(length)]
    trace = made(tasks, [(n, n + 1) for n in range(length - 1)] or [(0, 99)])
    found = whatif(trace, Change(scale={"a": factor}))
    assert found.new_ns == length * round(run * US * factor)


REAL = ("bgemm_Case1_L4", "paged_attention_CaseVarSeq4", "spmd_multiblock_mix", "sync_start_drain")


@pytest.mark.parametrize("case", ["decode_run", *REAL])
def test_runs_replay_exactly_on_their_cores(request: pytest.FixtureRequest, small: dict[str, Path], case: str) -> None:
    path = small[case] if case in small else request.getfixturevalue("shared") / "simpler" / "swimlane" / case
    found = whatif(npuscope.read(path), Change())
    assert found.new_ns == found.measured_ns
    assert abs(found.replay_error) < 0.25  # free cores; docs/understand/performance.md has the table


def test_stretching_every_time_stretches_the_answer() -> None:
    double = [
        replace(t, start=2 * t.start, end=2 * t.end, dispatch=2 * (t.dispatch or 0), finish=2 * (t.finish or 0))
        for t in DOZEN
    ]
    change = Change(scale={"down": 0.5}, dispatch_cost=0.5)
    assert whatif(made(double, DEPENDS), change).new_ns == 2 * whatif(dozen(), change).new_ns
