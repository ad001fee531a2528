"""What the analyses of any trace must add up to."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from npuscope.base.interval import ROUGH
from npuscope.explain.diagnosis import CAUSES, Diagnosis
from npuscope.explain.diagnosis.cause import MOST_SPANS
from npuscope.explain.explanation import Explanation, explain
from npuscope.explain.path import cover_of
from npuscope.explain.step_parts import StepPart
from npuscope.trace import Trace


def check(trace: Trace) -> Explanation:
    e = explain(trace)
    wall = e.work.wall
    assert wall >= 0
    # busy + idle = window on every lane
    lanes = e.busy.lanes
    assert (lanes["busy_ns"] + lanes["idle_ns"] == wall).all()
    assert (lanes["busy_ns"] >= 0).all()
    assert (lanes["idle_ns"] >= 0).all()
    # every idle nanosecond of a core lane has one reason: segments tile the lane's gaps
    segments = e.bubbles.segments
    assert (segments["end"] > segments["start"]).all()
    idle = dict(lanes.select("lane", "idle_ns").iter_rows())
    by_lane = dict(segments.group_by("lane").agg((pl.col("end") - pl.col("start")).sum()).iter_rows())
    cores = e.work.lanes["lane"].gather(e.work.core_lanes).to_list()
    assert all(by_lane.get(lane, 0) == idle[lane] for lane in cores)
    for rows in segments.partition_by("lane"):
        assert (rows["start"][1:] >= rows["end"][:-1]).all()
    # the path tiles the window, as a chain and as a cover
    for path in (e.path, cover_of(e.work, e.ready)):
        tiles = path.segments
        assert int((tiles["end"] - tiles["start"]).sum()) == wall
        assert (tiles["end"] > tiles["start"]).all()
        assert (tiles["start"][1:] == tiles["end"][:-1]).all()
    # the ledger's two columns are cores × window and the window
    ledger = e.scheduling.ledger
    assert int(ledger["core_ns"].sum()) == e.scheduling.cores * wall
    assert int(ledger["path_ns"].sum()) == wall
    assert (ledger["core_ns"] >= 0).all()
    # a kernel's on-core time is no longer than its core time, nor than the window
    kernels = e.busy.kernels
    assert (kernels["on_core_ns"] <= kernels["core_ns"]).all()
    assert int(kernels["core_ns"].sum()) == e.busy.core_ns
    assert e.busy.on_core_ns <= wall
    adds_up(e.diagnosis, e.is_simulated)
    return e


def adds_up(found: Diagnosis, simulated: bool = False) -> None:
    """Causes lie in the window, claim no time twice, and promise no more than the time they take."""
    first, last = found.window
    assert found.wall_ns == last - first
    assert found.causes
    assert sum(cause.share for cause in found.causes) <= 1 + 1e-6
    for cause in found.causes:
        assert cause.kind in CAUSES
        assert cause.sentence.endswith(".")
        assert cause.confidence in ("sure", "likely", "a guess")
        assert len(cause.where) <= MOST_SPANS
        assert all(first <= span.start < span.end <= last for span in cause.where)
        if cause.gain is not None:
            assert 0 <= cause.gain.low_ns <= cause.gain.ns <= cause.gain.high_ns
            # waits that go let what follows start in another order, which may save more than they take
            most = found.wall_ns if simulated or cause.kind == "dispatch" else cause.share * found.wall_ns
            assert cause.gain.high_ns <= most * (1 + ROUGH) + 1


def check_adds_up(parts: Sequence[StepPart]) -> None:
    """Every part equals the sum of those one level below it, and none is negative."""
    for number, part in enumerate(parts):
        assert part.dur_ns >= 0, part
        below = []
        for other in parts[number + 1 :]:
            if other.level <= part.level:
                break
            if other.level == part.level + 1:
                below.append(other.dur_ns)
        assert not below or sum(below) == part.dur_ns, (part, below)
