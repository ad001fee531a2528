"""Every kernel and every wait of a trace at half its cost and at none."""

from hypothesis import given
from hypothesis import strategies as st
from made import DOZEN, US, Task, dozen, made, submitted

from npuscope.explain import Change, whatif
from npuscope.explain.changes import EVERY_WAIT, Gains, OneChange, whatif_each

RUNS = st.lists(st.tuples(st.integers(1, 20), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=8)


def by_name(gains: Gains) -> dict[str, OneChange]:
    return {gain.what: gain for gain in gains.gains}


def test_the_drawn_run_is_ranked_by_what_each_thing_is_worth() -> None:
    unchanged, gains = whatif_each(dozen())
    assert gains.wall_ns == unchanged.measured_ns == 100 * US
    found = by_name(gains)
    assert {task.kernel for task in DOZEN} <= found.keys()
    # down takes 14 of the last 19 µs, out_proj is off the path, 25 µs of the path are waits for the scheduler
    assert (found["down"].half_ns, found["down"].nothing_ns) == (93 * US, 86 * US)
    assert found["out_proj"].nothing_ns == 100 * US
    # without any wait the tasks of one lane also swap places: the same number that is asked for by hand
    assert found[EVERY_WAIT].nothing_ns == whatif(dozen(), Change(dispatch_cost=0.0)).new_ns == 74 * US
    walls = [gain.nothing_ns for gain in gains.gains]
    assert walls == sorted(walls)


def test_each_agrees_with_the_change_asked_for_alone() -> None:
    for gain in whatif_each(dozen())[1].gains:
        if gain.kind == "kernel":
            asked = [whatif(dozen(), Change(scale={gain.what: factor})).new_ns for factor in (0.5, 0.0)]
            assert asked == [gain.half_ns, gain.nothing_ns]


def test_waits_are_told_apart_by_their_stamps() -> None:
    # GIVEN a ends at 10 and is seen at 12; b is handed out at 17 and starts at 20
    tasks = [Task(1, "a", "AIC_0", 0, 10, 0, 12), Task(2, "b", "AIC_1", 20, 25, 17, 25)]
    found = by_name(whatif_each(made(tasks, [(1, 2)]))[1])
    assert (found["FIN"].half_ns, found["FIN"].nothing_ns) == (24 * US, 23 * US)
    assert found["dispatch"].nothing_ns == 20 * US
    assert found["pickup"].nothing_ns == 22 * US
    assert found[EVERY_WAIT].nothing_ns == 15 * US


def test_an_orchestrator_that_submits_late_has_a_row_of_its_own() -> None:
    # GIVEN b, which waits for nobody, is submitted at 20, a task after a
    tasks = [Task(1, "a", "AIC_0", 0, 10, 0, 10), Task(2, "b", "AIC_1", 20, 30, 20, 30)]
    trace = submitted([*tasks, Task(2, "submit", "AICPU_0", 0, 20)], [(1, 3)])
    # WHEN / THEN without it b runs beside a; the other waits are nothing
    found = by_name(whatif_each(trace)[1])
    assert (found["submit"].half_ns, found["submit"].nothing_ns) == (20 * US, 10 * US)
    assert found["dispatch"].nothing_ns == 30 * US
    # and one task for both may be submitted in half the time: it runs from 10 to 30 then, or still from 20 to 40
    merged = whatif(trace, Change(merge=[("b", "a")]))
    assert (merged.low_ns, merged.new_ns) == (30 * US, 40 * US)


def test_without_edges_there_are_kernels_and_all_waits_together() -> None:
    tasks = [Task(1, "a", "AIC_0", 0, 10, 0, 12), Task(2, "b", "AIC_0", 20, 25, 17, 25)]
    gains = whatif_each(made(tasks, []))[1]
    assert {"a", "b", EVERY_WAIT} <= by_name(gains).keys()
    assert any("No edges" in note for note in gains.notes)


@given(RUNS)
def test_nothing_is_no_slower_than_half_in_a_chain(runs: list[tuple[int, int, int]]) -> None:
    tasks, now = [], 0
    for n, (run, pickup, fin) in enumerate(runs):
        start = now + pickup
        tasks.append(Task(n, f"k{n % 3}", "AIC_0", start, start + run, now, start + run + fin))
        now = start + run + fin
    gains = whatif_each(made(tasks, [(n, n + 1) for n in range(len(tasks) - 1)]))[1]
    for gain in gains.gains:
        assert gain.nothing_ns <= (gains.wall_ns if gain.half_ns is None else gain.half_ns) <= gains.wall_ns
