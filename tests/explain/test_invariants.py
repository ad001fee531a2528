"""What holds for every trace: times add up, nothing is negative, a lane's reasons are its idle time."""

from pathlib import Path

from adds_up import check
from hypothesis import given
from hypothesis import strategies as st
from made import Task, made

import npuscope
from npuscope import explain as analysis
from npuscope.explain.choosing import split_ranks
from npuscope.trace import Trace

LANES = ("AIC_0", "AIC_1", "AIV_0")


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Random tasks, overlapping or not, with or without stamps, with edges that may even contradict the times."""
    stamped = draw(st.booleans())
    names = draw(st.sampled_from([LANES, ("stream_0", "stream_1")]))
    tasks = []
    for number in range(draw(st.integers(0, 12))):
        start, length = draw(st.integers(0, 60)), draw(st.integers(0, 15))
        before, after = draw(st.integers(-2, 10)), draw(st.integers(0, 5))
        told = stamped and draw(st.integers(0, 9)) > 0
        tasks.append(
            Task(
                draw(st.integers(1, 8)) if number % 3 else number + 20,
                draw(st.sampled_from(["a", "b", "c_proj"])),
                draw(st.sampled_from(names)),
                start / 1000,
                (start + length) / 1000,
                (start - before) / 1000 if told else None,
                (start + length + after) / 1000 if told else None,
            )
        )
    ids = sorted({task.task for task in tasks}) or [1]
    pairs = draw(st.lists(st.tuples(st.sampled_from(ids), st.sampled_from(ids)), max_size=10))
    trace = made(tasks, [(a, b) for a, b in pairs if a != b], lanes=names)
    if draw(st.booleans()):
        trace = trace.window(draw(st.integers(-5, 20)), draw(st.integers(30, 70)))
    return trace


@given(traces())
def test_any_trace_adds_up(trace: Trace) -> None:
    check(trace)


@given(traces(), st.sampled_from(["a", "b|c", "."]))
def test_hidden_exposed_and_run_fill_the_episodes(trace: Trace, kernels: str) -> None:
    names = set(trace.slices["kernel"].to_list()) if trace.slices.height else set()
    if not any(name[0] in kernels or kernels == "." for name in names):
        return
    try:
        found = analysis.explain(trace, kernels).overlap
    except npuscope.NpuscopeError:
        return  # cut out of the window
    assert found is not None
    whole = found.units["lanes"] * found.episode_ns
    assert (found.units["run_ns"] + found.units["hidden_ns"] + found.units["exposed_ns"] == whole).all()
    assert (found.units["exposed_ns"] >= 0).all()
    assert 0 <= found.alone_ns <= found.on_core_ns <= found.episode_ns
    if found.ping_pong is not None:
        pong = found.ping_pong
        assert pong.serial_ns + pong.both_ns == found.episode_ns
        assert pong.longest_ns <= pong.serial_ns


@given(traces(), traces())
def test_the_waterfall_of_any_two_traces_adds_up(a: Trace, b: Trace) -> None:
    found = analysis.compare(a, b)
    assert int(found.waterfall.bars["ns"].sum()) == found.b.work.wall - found.a.work.wall


@given(traces())
def test_a_trace_against_itself_has_no_gap(trace: Trace) -> None:
    found = analysis.compare(trace, trace)
    assert set(found.waterfall.bars["ns"].to_list()) <= {0}
    assert found.not_like_for_like == ()


def test_every_capture_adds_up(any_capture: Path) -> None:
    for part in split_ranks(npuscope.read(any_capture)):
        check(part.trace)
