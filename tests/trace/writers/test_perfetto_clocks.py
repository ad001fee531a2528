"""Ranks have clocks of their own in Perfetto's trace, tied together where collectives end."""

from pathlib import Path
from typing import Any

import polars as pl
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as PerfettoTrace
from planted_ranks import TICK_NS, US, Planted

import npuscope
from npuscope.trace import Meta, Trace


def two_ranks(ahead: int) -> Trace:
    """The second rank's clock is ahead; the two all-reduces end at one moment, though it came to them later."""
    rows = [
        (0, 100, 50, "mm", "task"), (0, 150, 100, "all_reduce", "comm"), (0, 300, 100, "all_reduce", "comm"),
        (1, 200 + ahead, 50, "all_reduce", "comm"), (1, 390 + ahead, 10, "all_reduce", "comm"),
    ]  # fmt: skip
    slices = pl.DataFrame(rows, schema=["lane", "start", "dur", "kernel", "kind"], orient="row")
    lanes = pl.DataFrame({"lane": [0, 1], "name": ["stream 1", "stream 1"], "unit": ["stream"] * 2, "rank": [4, 7]})
    counters = pl.DataFrame({"lane": [1, None], "name": ["hbm", "all"], "time": [210 + ahead, 5], "value": [1.0, 2.0]})
    return Trace.of(slices, lanes, Meta("made"), None, counters)


def packets(trace: Trace, path: Path) -> list[Any]:
    trace.write(path)
    written = PerfettoTrace()
    written.ParseFromString(path.read_bytes())
    return list(written.packet)


def test_each_rank_keeps_its_times_and_a_snapshot_ties_the_clocks(tmp_path: Path) -> None:
    ahead = 950_500
    found = packets(two_ranks(ahead), tmp_path / "run.pftrace")
    (snapshot,) = [one.clock_snapshot for one in found if one.HasField("clock_snapshot")]
    times = {clock.clock_id: clock.timestamp for clock in snapshot.clocks}
    boot, first, second = sorted(times)  # the trace's clock, then one per rank
    assert (boot, times[first] - times[boot], times[second] - times[boot]) == (6, 0, ahead)
    events = [(one.timestamp_clock_id, one.timestamp) for one in found if one.HasField("track_event")]
    assert {clock for clock, _ in events} == {boot, first, second}  # the whole device's counter is of no rank
    aligned = sorted(time - times[clock] for clock, time in events if clock == second)
    assert aligned == [200, 210, 250, 390, 400]
    assert min(time for clock, time in events if clock == second) == 200 + ahead


def test_a_clock_behind_the_first_is_tied_too(tmp_path: Path) -> None:
    found = packets(two_ranks(-100), tmp_path / "run.pftrace")
    (snapshot,) = [one.clock_snapshot for one in found if one.HasField("clock_snapshot")]
    times = {clock.clock_id: clock.timestamp for clock in snapshot.clocks}
    assert (times[129] - times[128], min(times.values())) == (-100, 0)


def test_one_rank_needs_no_clock_of_its_own(tmp_path: Path) -> None:
    found = packets(two_ranks(0).select(rank=4), tmp_path / "run.pftrace")
    assert not any(one.HasField("clock_snapshot") or one.timestamp_clock_id for one in found)


def test_a_run_over_ranks_keeps_each_cards_own_stamps(tmp_path: Path) -> None:
    """The reader moved rank 1 onto rank 0's clock; the file has its own stamps again, and the snapshot ties them."""
    run = Planted([100, 700], [5, 900_000], kernels=("stage", "__builtin_all_reduce__fp32", "consume"))
    found = packets(npuscope.read(run.write(tmp_path / "root")), tmp_path / "run.pftrace")
    (snapshot,) = [one.clock_snapshot for one in found if one.HasField("clock_snapshot")]
    times = {clock.clock_id: clock.timestamp for clock in snapshot.clocks}
    assert times[129] - times[128] == (900_000 - 5) * US
    first = {clock: min(one.timestamp for one in found if one.timestamp_clock_id == clock) for clock in (128, 129)}
    stamps = {rank: run.rows(rank)[0][3] * TICK_NS for rank in (0, 1)}
    assert first == {128: stamps[0], 129: stamps[1]}


def test_a_rank_that_is_not_aligned_lies_behind_the_others_and_says_so(tmp_path: Path) -> None:
    run = Planted([100, 150], [5, 900_000], kernels=("stage", "put", "consume"), one_sided=True)
    found = packets(npuscope.read(run.write(tmp_path / "root")), tmp_path / "run.pftrace")
    (snapshot,) = [one.clock_snapshot for one in found if one.HasField("clock_snapshot")]
    times = {clock.clock_id: clock.timestamp for clock in snapshot.clocks}
    drawn = {
        clock: [one.timestamp - times[clock] for one in found if one.timestamp_clock_id == clock and one.track_event]
        for clock in (128, 129)
    }
    assert min(drawn[129]) > max(drawn[128])
    names = [one.track_descriptor.name for one in found if one.HasField("track_descriptor")]
    assert any(name.endswith("(clock not aligned)") and "rank 1" in name for name in names)
