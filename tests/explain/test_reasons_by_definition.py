"""The reasons of idle time against a version that asks the definitions of numbers.md for every nanosecond."""

from typing import Any

from hypothesis import given
from runs import launches

from npuscope import explain as analysis
from npuscope.trace import Trace


class ByDefinition:
    """Slow and obvious."""

    def __init__(self, trace: Trace) -> None:
        names = dict(trace.lanes.select("lane", "name").iter_rows())
        self.lanes = list(names)
        self.unit = {lane: name[:3] for lane, name in names.items()}
        self.slices = [
            {**row, "end": row["start"] + row["dur"]}
            for row in trace.slices.select("lane", "start", "dur", "task", "dispatch", "finish").to_dicts()
        ]
        self.edges = trace.edges.select("src", "dst").rows()
        self.ran = {s["task"] for s in self.slices}

    def producers(self, task: int) -> list[dict[str, int]]:
        """Slices of what a task waits for; a barrier stands for what it waits for."""
        found: list[Any] = []
        for src, dst in self.edges:
            if dst == task:
                found += [s for s in self.slices if s["task"] == src] if src in self.ran else self.producers(src)
        return found

    def other_work_waits(self, unit: str, t: int) -> bool:
        for s in self.slices:
            before = self.producers(s["task"])
            if self.unit[s["lane"]] == unit and before:
                ready = max(max(p["end"], p["finish"]) for p in before)
                if ready <= t < s["dispatch"]:
                    return True
        return False

    def reason(self, lane: int, t: int) -> str | None:
        """None while the lane is busy."""
        mine = [s for s in self.slices if s["lane"] == lane]
        if any(s["start"] <= t < s["end"] for s in mine):
            return None
        if mine and (t < min(s["start"] for s in mine) or t >= max(s["end"] for s in mine)):
            return "edge"
        unit = self.unit[lane]
        following = min((s for s in mine if s["start"] > t), key=lambda s: s["start"], default=None)
        before = self.producers(following["task"]) if following else []
        if following is None or (before and t < max(p["end"] for p in before)):
            if any(p["start"] <= t < p["end"] for p in before):
                return "dependency"
            return "dispatch" if self.other_work_waits(unit, t) else "starved"
        if before and t < max(p["finish"] for p in before):
            return "FIN"
        return "dispatch" if t < following["dispatch"] else "pickup"


@given(launches())
def test_every_nanosecond_has_the_reason_its_definition_gives(trace: Trace) -> None:
    slow = ByDefinition(trace)
    window = (min(s["start"] for s in slow.slices), max(s["end"] for s in slow.slices))
    expected = {(lane, t): r for lane in slow.lanes for t in range(*window) if (r := slow.reason(lane, t))}
    found = {
        (lane, t): reason
        for lane, start, end, reason in analysis.explain(trace)
        .bubbles.segments.select("lane", "start", "end", "reason")
        .iter_rows()
        for t in range(start, end)
    }
    assert found == expected
