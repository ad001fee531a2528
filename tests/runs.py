"""Random runs that could have happened: blocks on free cores, after the ends of what they wait for."""

from __future__ import annotations

from hypothesis import strategies as st
from made import Task, made

from npuscope.trace import Trace

CORES = ("AIC_0", "AIC_1", "AIV_0", "AIV_1")


@st.composite
def launches(draw: st.DrawFn) -> Trace:
    """Up to eight tasks of up to three blocks; some wait for others, directly or through a barrier without a slice."""
    free = dict.fromkeys(CORES, 0)
    tasks: list[Task] = []
    edges: list[tuple[int, int]] = []
    ended: dict[int, int] = {}
    for number in range(draw(st.integers(1, 8))):
        producers = [p for p in ended if draw(st.integers(0, 3)) == 0]
        ready = max((ended[p] for p in producers), default=0)
        for lane in draw(st.lists(st.sampled_from(CORES[:3]), min_size=1, max_size=3)):
            start = max(ready, free[lane]) + draw(st.integers(0, 6))
            free[lane] = start + draw(st.integers(1, 9))
            finish = free[lane] + draw(st.integers(0, 3))
            dispatch = draw(st.integers(ready, start))
            # times of a few nanoseconds, so that a slow version can look at each
            began, ended_at, given, seen = (t / 1000 for t in (start, free[lane], dispatch, finish))
            tasks.append(Task(number, f"k{number % 3}", lane, began, ended_at, given, seen))
            ended[number] = max(ended.get(number, 0), finish)
        if draw(st.booleans()) and producers:
            edges += [*((p, 100 + number) for p in producers), (100 + number, number)]
        else:
            edges += [(p, number) for p in producers]
    return made(tasks, edges or [(97, 98)], lanes=CORES)
