"""Counters: read from what has them, cut and selected with their lanes, kept by every format with a place for them."""

import json
from pathlib import Path

import polars as pl
import pytest
from builders import as_older, balanced, count, kernel_row, named, write_events, write_kernel_table, x
from hypothesis import given
from hypothesis import strategies as st
from made import Task, made

import npuscope
from npuscope import Trace
from npuscope import explain as analysis
from npuscope.trace import schema

SAMPLES = ["lane", "name", "time", "value"]


def with_counters(trace: Trace, *rows: tuple[int | None, str, int, float]) -> Trace:
    """The trace with samples of counters: lane, name, nanoseconds, value."""
    samples = pl.DataFrame(rows, schema=dict(schema.COUNTERS), orient="row")
    return Trace.of(trace.slices, trace.lanes, trace.meta, trace.edges, samples)


def samples_of(trace: Trace) -> list[tuple]:
    """Samples with the names of their lanes, sorted."""
    named = trace.counters.join(trace.lanes.select("lane", place="name"), on="lane", how="left")
    return sorted(named.select("place", "name", "time", "value").rows(), key=str)


@pytest.fixture
def trace() -> Trace:
    tasks = [Task(1, "a", "AIC_0", 0, 10), Task(2, "b", "AIV_1", 10, 20)]
    return with_counters(
        made(tasks),
        (None, "HBM GB/s", 0, 100.0),
        (None, "HBM GB/s", 8_000, 0.1),
        (0, "depth", 2_000, 3.0),
        (1, "depth", 4_000, -1.5e300),
        (1, "depth", 15_000, 7.0),
    )


# ---- reading


def test_every_number_of_a_counter_event_is_a_sample(tmp_path: Path) -> None:
    events = [
        x("k", 0, 10),
        count("queue", 1.5, AIC=3, AIV=0.25),
        count("queue", "2.5", AIC="4"),
        count("MHz", 3, pid=7, tid=0, MHz=1800),
        *named("AI Core Freq", pid=7),
    ]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert samples_of(trace) == [
        ("1", "queue AIC", 1_500, 3.0),
        ("1", "queue AIC", 2_500, 4.0),
        ("1", "queue AIV", 1_500, 0.25),
        ("AI Core Freq", "MHz", 3_000, 1800.0),
    ]
    assert dict(trace.lanes.select("name", "unit").iter_rows()) == {"1": "host", "AI Core Freq": "counter"}
    assert balanced(trace)


def test_what_is_no_number_is_counted(tmp_path: Path) -> None:
    events = [
        count("c", 0, a=None, b=[1], c=True, d="much"),
        count("c", 1),
        count("c", None, a=1, b=2),
        count("c", 2, a=2**60 + 1),
        {"ph": "C", "name": "c", "ts": 3, "args": "text"},
    ]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert trace.counters["value"].to_list() == [float(2**60)]
    assert trace.meta.dropped == {
        "counter series without a number": 4,
        "counter event without a series": 2,
        "event without a usable time": 1,
    }
    assert trace.meta.repaired == {"counter value beyond 53 bits rounded": 1}
    assert balanced(trace)


def test_one_name_with_several_ids_is_several_counters(tmp_path: Path) -> None:
    events = [{**count("bytes", ts, value=ts), "id": ts % 2} for ts in range(4)]
    events += [count("ost", ts, value=ts, acc_id=ts % 2) for ts in range(4)]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert dict(trace.counters["name"].value_counts().iter_rows()) == {
        "bytes[0]": 2, "bytes[1]": 2, "ost[0]": 2, "ost[1]": 2,
    }  # fmt: skip
    assert balanced(trace)


def test_a_batch_that_is_read_again_counts_its_samples_once(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(
        '[{"ph":"C","name":"c","ts":1736405443882078.413,"args":{"a":1,"b":2}},{"ph":"X","name":"k","ts":1,"dur":1}]'
    )
    trace = npuscope.read(tmp_path / "t.json")
    assert trace.counters["time"].to_list() == [1_736_405_443_882_078_413] * 2
    assert balanced(trace)


def test_counters_of_a_torch_trace_are_on_its_clock(tmp_path: Path) -> None:
    events = [x("gemm", 1, 2, pid=0, tid=7, cat="kernel"), count("GPU 0 Utilization", 2, pid=0, tid=7, value=50)]
    trace = npuscope.read(write_events(tmp_path / "t.json", events, baseTimeNanoseconds=10**18))
    assert trace.meta.format == "kineto"
    assert samples_of(trace) == [("stream 7", "GPU 0 Utilization", 10**18 + 2_000, 50.0)]


# ---- cutting


def test_a_window_keeps_what_a_counter_was_when_it_begins(trace: Trace) -> None:
    cut = trace.window(10_000, 20_000)
    assert cut.counters.select(SAMPLES).rows() == [
        (None, "HBM GB/s", 8_000, 0.1),
        (0, "depth", 2_000, 3.0),
        (1, "depth", 4_000, -1.5e300),
        (1, "depth", 15_000, 7.0),
    ]
    assert cut.meta.dropped == {"outside the window": 2}  # a slice and a sample
    assert cut.window(10_000, 20_000).counters.equals(cut.counters)


def test_counters_are_selected_with_their_lanes(trace: Trace) -> None:
    kept = trace.select(unit="AIC")
    assert set(kept.counters["lane"]) == {None, 0}
    assert kept.meta.dropped == {"not selected": 3}
    assert trace.select(kernel="a").counters.height == trace.counters.height


def test_counters_of_ranks_have_lanes_of_their_own(tmp_path: Path) -> None:
    for rank in (0, 1):
        folder = tmp_path / f"rank{rank}"
        folder.mkdir()
        events = [x("k", 0, 1), *named("whole device", pid=9), count("HBM", 1, pid=9, tid=0, value=rank + 1)]
        write_events(folder / "t.json", events)
        assert npuscope.read(folder / "t.json").counters["lane"].to_list() == [None]
    trace = npuscope.read(tmp_path)
    ranks = trace.counters.join(trace.lanes, on="lane").select("rank", "value").rows()
    assert sorted(ranks) == [(0, 1.0), (1, 2.0)]
    assert trace.select(rank=1).counters["value"].to_list() == [2.0]
    assert balanced(trace)


# ---- writing

samples = st.lists(
    st.tuples(
        st.sampled_from([None, 0, 1]),
        st.sampled_from(["depth", 'a "name"\n', "value", "x[1]"]),
        st.integers(-(10**6), 10**6),
        st.floats(allow_nan=False, allow_infinity=False),
    ),
    max_size=20,
)


@given(samples)
def test_counters_come_back_the_same_from_every_format_that_has_them(tmp_path_factory, rows) -> None:
    folder = tmp_path_factory.mktemp("c")
    trace = with_counters(made([Task(1, "a", "AIC_0", 0, 10), Task(2, "b", "AIV_1", 10, 20)]), *rows)
    for name in ("o.npu", "o.json", "o.json.gz"):
        assert trace.write(folder / name) == {}
        assert samples_of(npuscope.read(folder / name)) == samples_of(trace)
    # and once more from what was read
    again = npuscope.read(folder / "o.json")
    again.write(folder / "p.json")
    assert samples_of(npuscope.read(folder / "p.json")) == samples_of(trace)


def test_equal_counters_of_two_lanes_are_two_in_a_viewer(trace: Trace, tmp_path: Path) -> None:
    trace.write(tmp_path / "o.json")
    events = json.loads((tmp_path / "o.json").read_text())["traceEvents"]
    seen = {(e["pid"], e["name"], e.get("id")) for e in events if e["ph"] == "C"}
    assert len(seen) == 3  # viewers know counters by process, name and id


@pytest.mark.parametrize("name", ["tracr", "o.csv"])
def test_a_format_without_counters_says_so(trace: Trace, tmp_path: Path, name: str) -> None:
    left_out = trace.write(tmp_path / name)
    assert [count for reason, count in left_out.items() if "sample of a counter" in reason] == [5]


def test_a_folder_window_reads_what_the_counter_was(trace: Trace, tmp_path: Path) -> None:
    trace.write(tmp_path / "o.npu")
    whole, part = trace.window(10_000, 20_000), npuscope.read(tmp_path / "o.npu", window=(10_000, 20_000))
    assert part.counters.equals(whole.counters)
    assert part.meta.dropped == whole.meta.dropped


def test_a_folder_of_an_earlier_version_still_opens(tmp_path: Path) -> None:
    trace = npuscope.read(write_kernel_table(tmp_path / "k.csv", [kernel_row()]))
    trace.write(tmp_path / "old.npu")
    (tmp_path / "old.npu/counters.parquet").unlink()
    assert npuscope.read(as_older(tmp_path / "old.npu", "rows", "unknown")).counters.is_empty()
    trace.write(tmp_path / "old.npu")  # still ours: replaced


# ---- levels


def test_levels_are_over_time_and_inside_the_window(trace: Trace) -> None:
    table = analysis.counters(trace).table
    assert table.filter(pl.col("name") == "HBM GB/s").rows() == [
        ("whole device", "HBM GB/s", 2, 0.1, (100.0 * 8 + 0.1 * 12) / 20, 100.0, 1.0)
    ]
    late = analysis.counters(trace.window(10_000, 20_000)).table
    assert late.filter(pl.col("lane") == "AIC_0").select("mean", "share").row(0) == (3.0, 1.0)
    assert late.filter(pl.col("name") == "HBM GB/s")["mean"].item() == pytest.approx(0.1)
