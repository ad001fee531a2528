"""Forward passes written by hand: calls end to end on one stream, in microseconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from made import Task, made

from npuscope.trace import Trace

# type, microseconds, and perhaps shapes
Call = tuple[str, float] | tuple[str, float, str]


def a_pass(calls: Sequence[Call], columns: Mapping[str, Any] | None = None, gap: float = 0.0) -> Trace:
    """A trace of the calls, with a gap after each; `columns` has more facts, one per call."""
    now, tasks = 0.0, []
    for number, (kernel, us, *shapes) in enumerate(calls):
        more = {"Type": kernel, "Input Shapes": shapes[0] if shapes else "N/A"}
        more |= {name: values[number] for name, values in (columns or {}).items()}
        tasks.append(Task(number, f"{kernel}_{number}", "stream_7", now, now + us, more=tuple(more.items())))
        now += us + gap
    return made(tasks)
