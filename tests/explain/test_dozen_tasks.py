"""The dozen tasks drawn in numbers.md, every number derived by hand (microseconds, two cube and two vector cores).

AIC_0  q_proj 0–10           qk 25–35          sv 47–57   up 60–70        down 81–95
AIC_1  k_proj 0–14   gate 20–50                           out_proj 61–75
AIV_0          rope 17–22           softmax 38–44               silu 74–78
AIV_1                                                                           residual 98–100
"""

from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from made import DEPENDS, DOZEN, US, Task, dozen, made

from npuscope import explain as analysis
from npuscope.base.interval import Gain
from npuscope.explain.changes import Fewest
from npuscope.trace import Trace


@pytest.fixture(scope="module")
def trace() -> Trace:
    return dozen()


def test_busy_and_idle(trace: Trace) -> None:
    # GIVEN a window of 100 µs from the first start to the last end
    busy = analysis.explain(trace).busy
    # THEN AIC_0 ran 10 + 10 + 10 + 10 + 14 and AIC_1 14 + 30 + 14; AIV_0 5 + 6 + 4 and AIV_1 2
    assert busy.window_ns == 100 * US
    assert dict(busy.lanes.select("name", "busy_ns").iter_rows()) == {
        "AIC_0": 54 * US, "AIC_1": 58 * US, "AIV_0": 15 * US, "AIV_1": 2 * US,
    }  # fmt: skip
    assert busy.units.select("unit", "lanes", "busy_ns", "idle_ns").rows() == [
        ("AIC", 2, 112 * US, 88 * US),
        ("AIV", 2, 17 * US, 183 * US),
    ]
    # and nothing ran in 14–17, 57–60, 78–81 and 95–98
    assert busy.on_core_ns == 88 * US
    assert busy.core_ns == 129 * US


# per lane: C0's gaps are 10–25, 35–47, 57–60, 70–81 and 95–100, and so on; see docs/understand/numbers.md
IDLE = {
    "AIC_0": {"starved": 5 + 3 + 4, "dispatch": (2 + 1) + 1 + 2 + 1, "dependency": 5 + 6 + 4, "FIN": 3, "pickup": 4,
              "edge": 5},
    "AIC_1": {"FIN": 1 + 1, "dispatch": 3 + 2, "pickup": 2 + 1, "dependency": 7, "edge": 25},
    "AIV_0": {"edge": 17 + 22, "starved": 3 + 10, "dependency": 10 + 16, "FIN": 2, "dispatch": 2, "pickup": 1 + 2},
    "AIV_1": {"edge": 98},
}  # fmt: skip


def test_every_idle_nanosecond_has_its_reason(trace: Trace) -> None:
    found = analysis.explain(trace).bubbles
    names = dict(trace.lanes.select("lane", "name").iter_rows())
    by_lane: dict[str, dict[str, int]] = {}
    for lane, reason, ns in found.by_lane().iter_rows():
        by_lane.setdefault(names[lane], {})[reason] = ns // US
    assert by_lane == IDLE
    assert found.by_reason == {
        "edge": 167 * US, "dependency": 48 * US, "starved": 25 * US, "dispatch": 14 * US, "pickup": 10 * US,
        "FIN": 7 * US,
    }  # fmt: skip
    assert found.notes == ()


def test_work_that_was_ready_elsewhere_makes_a_gap_dispatch_and_not_starved(trace: Trace) -> None:
    # GIVEN AIC_0 idle from 10, whose next task qk waits for rope, which starts at 17
    # WHEN gate was ready for a cube core from 15 (k_proj was seen to end) until it was handed out at 18
    segments = analysis.explain(trace).bubbles.segments.filter(pl.col("lane") == 0).head(4)
    # THEN 15–17 is the scheduler's, not a lack of work
    assert [(s // US, e // US, r) for s, e, r in segments.select("start", "end", "reason").iter_rows()] == [
        (10, 15, "starved"), (15, 17, "dispatch"), (17, 22, "dependency"), (22, 23, "FIN"),
    ]  # fmt: skip


def test_blockers_are_named(trace: Trace) -> None:
    found = analysis.explain(trace).bubbles
    # silu waited for gate while that ran (44–50), and for up while that ran (60–70)
    assert "`silu` waited 6 µs for `gate` in 1 gap" in found.sentences(20)
    assert "`silu` waited 10 µs for `up` in 1 gap" in found.sentences(20)
    assert "`out_proj` waited 7 µs for `sv` in 1 gap" in found.sentences(20)


def test_attention_is_partly_hidden_behind_gate(trace: Trace) -> None:
    # GIVEN the set qk, softmax, sv, under way from 25 to 57 without a break, since each waits for the one before
    found = analysis.explain(trace, "^(qk|softmax|sv)$").overlap
    assert found is not None
    assert (found.episodes, found.episode_ns, found.on_core_ns) == (1, 32 * US, 26 * US)
    # THEN on two cube cores for 32 µs it runs 20, gate covers 25, and 19 stay exposed; on the vector cores 6, 0, 58
    assert found.units.rows() == [("AIC", 2, 20 * US, 25 * US, 19 * US), ("AIV", 2, 6 * US, 0, 58 * US)]
    assert found.hidden_share == pytest.approx(25 / 102)
    # and of its 26 µs gate ran beside 10 + 6 + 3
    assert found.alone_ns == 7 * US


def test_attention_alternates_between_cube_and_vector(trace: Trace) -> None:
    found = analysis.explain(trace, "^(qk|softmax|sv)$").overlap
    assert found is not None
    pong = found.ping_pong
    assert pong is not None
    assert (pong.aic_alone_ns, pong.aiv_alone_ns, pong.both_ns, pong.neither_ns) == (20 * US, 6 * US, 0, 6 * US)
    assert (pong.switches, pong.longest_ns, pong.longest_switches) == (2, 32 * US, 2)


def test_critical_path(trace: Trace) -> None:
    path = analysis.explain(trace).path
    assert path.kind == "chain"
    # walked back from residual: down, silu, up (whose core sv held), sv, softmax, qk, rope, k_proj
    run = path.segments.filter(pl.col("part") == "run")
    assert run["kernel"].to_list() == ["k_proj", "rope", "qk", "softmax", "sv", "up", "silu", "down", "residual"]
    assert path.by_part() == {"run": 75 * US, "dispatch": 9 * US, "pickup": 9 * US, "FIN": 7 * US}
    assert path.by_link() == {"dependency": 51 * US, "core": 10 * US, "none": 14 * US}


def test_the_end_can_fall_by_what_lies_on_the_path_at_most(trace: Trace) -> None:
    bound: Any = analysis.explain(trace).path.as_dict()["bound"]
    assert bound["kernels"]["down"] == 14 * US
    assert "gate" not in bound["kernels"]  # off the path: making it free saves nothing
    assert bound["reasons"]["FIN"] == 7 * US


def test_scheduling_is_one_ledger_that_adds_up(trace: Trace) -> None:
    s = analysis.explain(trace).scheduling
    assert (s.tasks, s.launches, s.cores) == (12, 12, 4)
    assert s.mean_run_ns == pytest.approx(129 * US / 12)
    assert s.mean_dispatch_to_start_ns == pytest.approx(14 * US / 12)
    assert s.mean_end_to_finish_ns == pytest.approx(US)
    assert s.mean_dispatch_to_finish_ns == pytest.approx(155 * US / 12)
    assert s.overhead == pytest.approx(1 - 129 / 155)
    assert s.in_flight == pytest.approx(155 / 100)
    # all cores × window, and the window along the path
    assert int(s.ledger["core_ns"].sum()) == 4 * 100 * US
    assert int(s.ledger["path_ns"].sum()) == 100 * US


def test_the_causes_share_the_path_and_the_one_worth_most_comes_first(trace: Trace) -> None:
    found = analysis.explain(trace).diagnosis
    # 25 of waits for the scheduler, 2 after the last start; of 73 of runs, 34 while both cores of the unit ran
    shares = {cause.kind: cause.share for cause in found.causes}
    assert shares == pytest.approx({"dispatch": 0.25, "core": 0.34, "dependency": 0.39, "tail": 0.02})
    # of the chain's 39 nobody knows how many could go: half of them stand for it
    assert [cause.kind for cause in found.causes] == ["dependency", "dispatch", "core", "tail"]
    chain, scheduler = (cause.gain for cause in found.causes[:2])
    assert chain == Gain(39 * US // 2, 0, 39 * US)
    # rope, qk, softmax, sv and out_proj follow one another alone, so do silu and down: 7 tasks would be left of 12.
    # The likeliest replay, in which no task queues behind another, saves 26 without any scheduler, the other one 20;
    # a scheduler with 7 of 12 tasks saves 5/12 of that, to the rounding of each wait
    assert scheduler is not None
    assert [scheduler.ns, scheduler.low_ns] == pytest.approx([26 * US * 5 / 12, 20 * US * 5 / 12], abs=12)
    assert scheduler.high_ns == 26 * US
    assert "7 launches instead of 12 tasks" in found.causes[1].evidence[-1]
    assert str(found.causes[0]) == (
        "Tasks wait for one another: a chain of 6 tasks takes 39 µs (39.0% of the time, of the 75.0% in which tasks "
        "run) while other cores are free; `down` is 14 µs of it."
    )


def test_fan_out_by_area(trace: Trace) -> None:
    areas = dict(analysis.explain(trace).fan_out.areas.select("area", "tasks").iter_rows())
    assert areas == {"QKV": 3, "attention": 3, "MLP": 4, "out_proj": 1, "other": 1}


def test_without_edges_reasons_merge_and_say_so() -> None:
    found = analysis.explain(made(DOZEN)).bubbles
    assert set(found.by_reason) == {"dependency+FIN+dispatch+starved", "pickup", "edge"}
    assert found.total_ns == 271 * US
    assert "No edges" in found.notes[0]


def test_without_dispatch_times_reasons_merge_and_say_so() -> None:
    bare = [replace(task, dispatch=None, finish=None) for task in DOZEN]
    found = analysis.explain(made(bare, DEPENDS)).bubbles
    # waiting for data is still told: 48 of dependency, and starved now holds what was ready elsewhere
    assert found.by_reason == {
        "edge": 167 * US, "dependency": 48 * US, "FIN+dispatch+pickup": 29 * US, "starved": 27 * US,
    }  # fmt: skip
    assert "no dispatch time" in found.notes[0]
    # with neither there is one reason beside the edges
    neither = analysis.explain(made(bare)).bubbles
    assert neither.by_reason == {"edge": 167 * US, "dependency+FIN+dispatch+pickup+starved": 104 * US}


def test_the_path_goes_through_the_core_of_a_mixed_block_that_ended_last() -> None:
    # GIVEN a block on a cube core for 90 µs and on a vector core for 1, seen done at once, and one task after it
    mixed = [Task(1, "attention", "AIC_0", 0, 90, 0, 92), Task(1, "attention", "AIV_0", 0, 1, 0, 92)]
    for order in (mixed, mixed[::-1]):
        path = analysis.explain(made([*order, Task(2, "norm", "AIV_0", 93, 100, 92, 101)], [(1, 2)])).path
        # THEN it ran for 90 µs, and only the 2 after that are the scheduler's
        assert path.by_part() == {"run": 97 * US, "FIN": 2 * US, "pickup": 1 * US}


def test_as_few_tasks_as_can_be() -> None:
    # GIVEN two layers of a kernel with 30 blocks in 3 tasks each, the second after all of the first, on 24 cores
    kernel, blocks, cores = np.array([7] * 6), np.array([10] * 6), np.array([24] * 6)
    src, dst = (np.array(ends) for ends in zip(*((a, b) for a in range(3) for b in range(3, 6)), strict=True))
    # THEN two launches are left, each with a block per core
    assert Fewest.of(kernel, blocks, cores, src, dst) == Fewest(6, 2, 60, 48)
    # AND a chain of four tasks of one block each is one task, one of four launches of two blocks each is not
    chain = np.arange(3), np.arange(1, 4)
    for each, launches, left in ((1, 1, 1), (2, 4, 8)):
        found = Fewest.of(np.arange(4), np.full(4, each), np.full(4, 24), *chain)
        assert (found.launches, found.left) == (launches, left)


def test_no_gain_is_more_than_the_run() -> None:
    assert Gain(90, 10, 300).within(100) == Gain(90, 10, 100)
    assert Gain(250, 200, 300).within(100) == Gain(95, 95, 100)
