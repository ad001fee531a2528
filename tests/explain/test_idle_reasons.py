"""Bubbles where captures are incomplete, and what stands in for what is missing."""

import polars as pl
from made import US, Task, made, submitted

from npuscope import explain as analysis
from npuscope.trace import Meta, Trace


def by_reason(trace: Trace) -> dict[str, int]:
    return {reason: ns // US for reason, ns in analysis.explain(trace).bubbles.by_reason.items()}


def test_a_barrier_that_never_runs_passes_on_its_producers() -> None:
    # GIVEN b waits for a through two tasks that have no slice, such as an allocation and a dummy
    a, b = Task(1, "a", "AIC_0", 0, 10, 0, 11), Task(4, "b", "AIC_1", 14, 20, 13, 21)
    first = Task(5, "first", "AIC_1", 0, 2, 0, 3)
    trace = made([a, b, first], [(1, 2), (2, 3), (3, 4)])
    # WHEN / THEN AIC_1 waits for a, through both
    assert by_reason(trace) == {"edge": 10, "dependency": 8, "dispatch": 2, "FIN": 1, "pickup": 1}
    assert analysis.explain(trace).bubbles.blockers()["blocker"].to_list()[0] == "a"


def test_producers_that_run_one_after_another_leave_a_starved_stretch_between() -> None:
    # GIVEN c waits for a (0–10) and for b (20–30), and nothing runs in between
    tasks = [Task(1, "a", "AIC_0", 0, 10, 0, 10), Task(2, "b", "AIC_0", 20, 30, 20, 30)]
    tasks += [Task(4, "x", "AIV_0", 0, 1, 0, 1), Task(3, "c", "AIV_0", 30, 31, 30, 31)]
    # WHEN / THEN
    assert by_reason(made(tasks, [(1, 3), (2, 3), (1, 2)])) == {
        "dependency": 19,
        "starved": 10,
        "dispatch": 10,
        "edge": 1,
    }


def test_what_the_orchestrator_has_not_submitted_starves_its_core() -> None:
    # GIVEN b depends on a, which ended at 10, and is submitted at 25
    tasks = [Task(1, "a", "AIC_0", 0, 10, 0, 11), Task(2, "b", "AIC_0", 30, 40, 28, 41)]
    # WHEN / THEN
    assert by_reason(submitted([*tasks, Task(2, "submit", "AICPU_0", 24, 25)], [(1, 2)])) == {
        "starved": 14, "dispatch": 3, "pickup": 2, "FIN": 1,
    }  # fmt: skip


def test_a_core_that_never_ran_is_starved_unless_work_for_it_was_waiting() -> None:
    # GIVEN a second cube core that never ran, while b was ready from 11 and handed out at 15
    tasks = [Task(1, "a", "AIC_0", 0, 10, 0, 11), Task(2, "b", "AIC_0", 16, 20, 15, 21)]
    trace = made(tasks, [(1, 2)], lanes=("AIC_0", "AIC_1"))
    # WHEN / THEN
    segments = analysis.explain(trace).bubbles.segments.filter(lane=1).select("start", "end", "reason").rows()
    assert [(s // US, e // US, r) for s, e, r in segments] == [
        (0, 11, "starved"), (11, 15, "dispatch"), (15, 20, "starved"),
    ]  # fmt: skip


def test_the_producer_that_ran_is_blamed_and_not_the_last_one() -> None:
    # GIVEN t, which waits for p1 (0–90) and p2 (91–92)
    tasks = [Task(1, "p1", "AIC_0", 0, 90, 0, 90), Task(2, "p2", "AIC_0", 91, 92, 91, 92)]
    tasks += [Task(3, "x", "AIV_0", 0, 4, 0, 4), Task(4, "t", "AIV_0", 92, 95, 92, 95)]
    found = analysis.explain(made(tasks, [(1, 4), (2, 4)])).bubbles.sentences(10)
    assert "`t` waited 86 µs for `p1` in 1 gap" in found
    assert "`t` waited 1 µs for `p2` in 1 gap" in found


def test_between_the_blocks_of_a_producer_nobody_runs() -> None:
    # GIVEN a launch with blocks at 0–10 and 40–50, and a consumer on a core that is free from 1
    tasks = [Task(1, "p", "AIC_0", 0, 10, 0, 10), Task(1, "p", "AIC_0", 40, 50, 40, 50)]
    tasks += [Task(3, "x", "AIV_0", 0, 1, 0, 1), Task(2, "t", "AIV_0", 50, 60, 50, 60)]
    lane = analysis.explain(made(tasks, [(1, 2)])).bubbles.segments.filter(lane=1)
    assert [(s // US, e // US, r) for s, e, r in lane.select("start", "end", "reason").iter_rows()] == [
        (1, 10, "dependency"), (10, 40, "starved"), (40, 50, "dependency"),
    ]  # fmt: skip


def test_a_stream_waits_for_the_hosts_launch() -> None:
    # GIVEN kernels at 0–10 and 30–40 on a stream; the second's launch returns at 24
    trace = made(
        [Task(1, "k", "stream_7", 0, 10), Task(2, "k", "stream_7", 30, 40), Task(9, "launch", "host_0", 20, 24)]
    )
    flow = pl.DataFrame({"src": [9], "dst": [2], "source": ["flow"], "name": ["ac2g"]})
    # WHEN / THEN
    found = analysis.explain(Trace.of(trace.slices, trace.lanes, trace.meta, flow)).bubbles
    assert found.by_reason == {"launch": 14 * US, "dependency+pickup": 6 * US}
    assert found.notes == (
        "Lanes are streams, not cores (1 of 2 slices have a launch): why streams wait for one another is not recorded.",
    )


def test_tracr_slices_hold_their_waits() -> None:
    # GIVEN slices from dispatch to retired, which overlap where one is pending behind another
    tasks = [Task(1, "a", "AIC_0", 0, 10), Task(2, "a", "AIC_0", 8, 20), Task(3, "a", "AIC_0", 25, 30)]
    trace = made(tasks, format="tracr")
    trace = Trace.of(trace.slices.with_columns(phase=pl.lit("run")), trace.lanes, Meta("tracr"))
    # WHEN / THEN the overlap is busy once, and means that need run times are left out
    assert by_reason(trace) == {"dependency+FIN+dispatch+pickup+starved": 5}
    s = analysis.explain(trace).scheduling
    assert (s.mean_run_ns, s.overhead) == (None, None)
    assert s.mean_dispatch_to_finish_ns == 9 * US
    assert s.in_flight == 27 / 30


def test_an_empty_trace_has_nothing_to_say() -> None:
    e = analysis.explain(made([]))
    assert (e.bubbles.by_reason, e.path.by_part(), e.busy.kernels.height) == ({}, {}, 0)
    assert (e.diagnosis.verdict.kind, e.diagnosis.verdict.share) == ("unknown", 0.0)
    assert e.busy.window_ns == 0


def test_a_window_with_nothing_in_it_is_idle() -> None:
    trace = made([Task(1, "a", "AIC_0", 0, 10)]).window(20 * US, 30 * US)
    assert by_reason(trace) == {"dependency+FIN+dispatch+pickup+starved": 10}


def test_results_print_show_and_convert() -> None:
    found = analysis.explain(made([Task(1, "a", "AIC_0", 0, 10), Task(2, "<b>", "AIC_0", 15, 20)])).bubbles
    assert "5 µs idle" in str(found)
    assert str(found) == repr(found)
    assert "<table" in found._repr_html_()
    assert found.frame()["idle_ns"].to_list() == [5 * US]
    assert "&lt;b&gt;" in analysis.explain(made([Task(2, "<b>", "AIC_0", 15, 20)])).busy._repr_html_()
