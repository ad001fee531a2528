"""Every record is kept, merged, dropped, repaired or unknown, and counted; nothing is lost in silence."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from builders import (
    KERNEL_HEADER,
    balanced,
    count,
    kernel_row,
    named,
    point,
    refused,
    write_bundle,
    write_events,
    write_kernel_table,
    write_swimlane,
    x,
)
from hypothesis import given
from hypothesis import strategies as st
from real_data import DATA
from small import SMALL

import npuscope
from npuscope import Trace
from npuscope.explain.doctor import symptoms_of
from npuscope.trace.event_table import collect
from npuscope.trace.formats import EventReader, Reader, Sample, readers
from npuscope.trace.intervals import one_group, union
from npuscope.trace.schema import counts_once

SERVED = "execute_context_0(0)_generation_4(4)"
NAMES = ["ProfilerStep#1", "ProfilerStep#2", SERVED, "step[DECODE bs=4]", "hipGraphLaunch", "gemm", "ncclAllReduce",
         "Memcpy DtoH", "qk(r1t2)", "hcom_allReduce__1", "MEMCPY_ASYNC", "EVENT_WAIT"]  # fmt: skip
DIALECTS: dict[str, dict[str, Any]] = {
    # the header, what processes are called, the categories
    "kineto": {
        "header": {"deviceProperties": []},
        "processes": [],
        "categories": [
            "kernel",
            "gpu_memcpy",
            "cpu_op",
            "cuda_runtime",
            "user_annotation",
            "gpu_user_annotation",
            "mood",
        ],
    },
    "kineto of 2021": {
        "header": {"distributedInfo": {"rank": 3}},
        "processes": [],
        "categories": ["Kernel", "Memcpy", "Memset", "Runtime", "Operator", "async", "mood"],
    },
    "trace_view": {"header": {}, "processes": ["Ascend Hardware", "HCCL", "CANN", "Mood"], "categories": [""]},
    "merged-swimlane": {"header": {}, "processes": ["Worker View", "Scheduler View", "Mood"], "categories": [""]},
    "tracr-perfetto": {"header": {}, "processes": ["TraCR proc.1", "TraCR proc.2"], "categories": [""]},
    "chrome": {"header": {}, "processes": ["anything"], "categories": ["a", "b"]},
}
times = st.one_of(st.integers(0, 60), st.decimals(0, 60, places=3).map(str), st.none())
events = st.lists(
    st.fixed_dictionaries(
        {
            "ph": st.sampled_from(["X", "X", "X", "X", "s", "f", "B", "E", "i", "C"]),
            "name": st.sampled_from(NAMES),
            "category": st.integers(0, 6),
            "pid": st.integers(0, 3),
            "tid": st.integers(0, 2),
            "ts": times,
            "dur": times,
            "id": st.integers(0, 3),
            "args": st.dictionaries(
                st.sampled_from(["correlation", "taskId", "stream"]), st.integers(0, 3), min_size=1
            ),
        }
    ),
    max_size=16,
)
headers = st.dictionaries(
    st.sampled_from(["mood", "weather"]), st.one_of(st.integers(), st.lists(st.integers(), max_size=3))
)


@pytest.mark.parametrize("dialect", DIALECTS)
@given(drawn=events, more=headers)
def test_every_dialect_of_json(
    tmp_path_factory: pytest.TempPathFactory, dialect: str, drawn: list[dict[str, Any]], more: dict[str, Any]
) -> None:
    how = DIALECTS[dialect]
    folder = tmp_path_factory.mktemp("json")
    lanes = [event for pid, process in enumerate(how["processes"]) for event in named(process, f"AIC_{pid}", pid=pid)]
    found = [_event(event, how["categories"]) for event in drawn]
    trace = npuscope.read(write_events(folder / "t.json", [*lanes, *found], **how["header"], **more))
    assert trace.meta.format == dialect.split(" ")[0]
    # THEN every event is somewhere; a counter event has a record for each of its numbers
    series = sum(len(event["args"]) - 1 for event in found if event["ph"] == "C" and event["ts"] is not None)
    assert trace.meta.records == len(lanes) + len(found) + series
    check(trace, folder)
    # and what nobody knows is reported
    for key, value in more.items():
        assert trace.meta.unknown[f"header key '{key}'"] == (max(len(value), 1) if isinstance(value, list) else 1)
    moods = trace.slices.filter(trace.slices["cat"] == "mood").height
    assert trace.meta.unknown.get("category 'mood'", 0) == moods
    beside = sum(_in_process(trace, "Mood"))
    assert trace.meta.unknown.get("process 'Mood'", 0) == beside


def _event(event: dict[str, Any], categories: list[str]) -> dict[str, Any]:
    made = {**event, "cat": categories[event["category"] % len(categories)]}
    del made["category"]
    return made


def _in_process(trace: Trace, name: str) -> list[int]:
    rows = [table.join(trace.lanes.select("lane", "process"), on="lane") for table in (trace.slices, trace.counters)]
    return [int((table["process"] == name).sum()) for table in rows]


def sound(trace: Trace) -> None:
    """The account balances, and every slice has a lane, a name and times."""
    assert balanced(trace)
    assert trace.slices["lane"].is_in(trace.lanes["lane"].implode()).all()
    assert (trace.slices["dur"] >= 0).all()
    for column in ("start", "dur", "kernel", "kind"):
        assert trace.slices[column].null_count() == 0


def check(trace: Trace, folder: Path) -> None:
    """The trace is sound, and our own folder gives back what was read."""
    sound(trace)
    trace.write(folder / "o.npu")
    back = npuscope.read(folder / "o.npu")
    for table in ("slices", "lanes", "edges", "counters"):
        assert getattr(back, table).equals(getattr(trace, table)), table
    assert back.meta == trace.meta


rows = st.tuples(*[st.integers(0, 5)] * 3, st.integers(0, 500), st.integers(0, 500), st.integers(0, 2)).map(list)
scheduled = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 500), st.integers(0, 500)).map(list)


@given(ran=st.lists(rows, max_size=8), stamps=st.lists(scheduled, max_size=8), more=st.booleans())
def test_the_first_layout_of_swimlanes(
    tmp_path_factory: pytest.TempPathFactory, ran: list[list[int]], stamps: list[list[int]], more: bool
) -> None:
    folder = tmp_path_factory.mktemp("swimlane")
    strange = {"moods": [1, 2, 3]} if more else {}
    trace = npuscope.read(write_swimlane(folder, ran, stamps, **strange))
    assert trace.meta.records == len(ran) + len(stamps)
    check(trace, folder)
    assert ("moods" in json.dumps(dict(trace.meta.unknown))) == more


parts = st.sampled_from(["table", "timeline", "bundle", "nothing"])


@given(st.lists(parts, min_size=1, max_size=4))
def test_a_root_holds_what_its_captures_hold(tmp_path_factory: pytest.TempPathFactory, drawn: list[str]) -> None:
    folder = tmp_path_factory.mktemp("root")
    single = []
    for rank, what in enumerate(drawn):
        place = folder / "in" / f"rank{rank}"
        place.mkdir(parents=True)
        if what == "table":
            single.append(write_kernel_table(place / "kernel_details.csv", [kernel_row()] * (rank + 1)))
        elif what == "timeline":
            kernel = {"ph": "X", "name": "k", "pid": 0, "tid": 7, "ts": rank, "dur": 1, "cat": "kernel"}
            single.append(write_events(place / "t.json", [kernel], deviceProperties=[], mood=1))
        elif what == "bundle":
            single.append(write_bundle(place / "tracr", {1: point(0, 0, 5) + point(0, 65535, 9)}, markerLabels=["A"]))
        else:
            (place / "notes.strange").write_text("nothing")
    if not single:
        refused(folder / "in", "no capture")
        return
    trace, singles = npuscope.read(folder / "in"), [npuscope.read(path) for path in single]
    assert trace.meta.records == sum(one.meta.records for one in singles)
    assert trace.slices.height == sum(one.slices.height for one in singles)
    assert trace.meta.unknown.get("header key 'mood'", 0) == drawn.count("timeline")
    assert sum(n for what, n in trace.meta.unknown.items() if "strange" in what) == drawn.count("nothing")
    check(trace, folder)


CAPTURES = sorted(
    str(path.relative_to(DATA))
    for pattern in (
        "ascend/**/kernel_details.csv", "ascend/**/trace_view.json", "ascend/**/*.db", "gpu/*.json.gz", "pypto/*.json",
        "simpler/swimlane*/*/*swimlane_records.json", "simpler/swimlane/*/merged_swimlane.json.gz",
        "simpler/swimlane/*", "simpler/tracr/*", "simpler/tracr/*/tracr", "simpler/tracr/*/tracr/perfetto.json*",
        "tracr/*/tracr", "tracr/edge_cases/*/tracr",
        "tracr/*/tracr/perfetto.json",
    )
    for path in DATA.glob(pattern)
) if DATA.is_dir() else []  # fmt: skip


def test_every_reader_has_a_small_capture(small: dict[str, Path]) -> None:
    # so that stories about all formats, and benchmarks/mutate.py, miss none
    known = {path: next(one for one in readers(Reader) if one.recognises(Sample(path))).name for path in small.values()}
    events = [collect(path) for path, reader in known.items() if reader == "chrome"]
    dialects = {next((one for one in readers(EventReader) if one.recognises(table)), None) for table in events}
    missing = {one.name for one in readers(Reader)} - {*known.values()} | {*readers(EventReader)} - dialects
    assert not missing


@pytest.mark.parametrize("name", [*SMALL, *CAPTURES])
def test_records_in_are_slices_out_or_accounted_for(small: dict[str, Path], name: str) -> None:
    trace = npuscope.read(small.get(name, DATA / name))
    assert trace.slices.height + trace.counters.height > 0
    sound(trace)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"PAR1....", "Parquet file"),
        (b"\x00\x01\x02\x03", "binary data"),
        (b"hello world\n", "begins with 'hello world'"),
        (b"a,b\n1,2\n", "begins with 'a,b'"),
        (b"\x1f\x8b\x08\x00garbage", "damaged|too early"),
        (b"\x0a\x20\x08\x01\x12\x0d/device:TPU:0\x1a", "not an XPlane file of XLA .*Copy it again"),
        (b'{"schema": "1.1.1-chakra.0.0.4", "nodes": []}', "Chakra execution trace.*times of a device"),
        (b'{"schema": "1.0.1", "nodes": [{"name": "[pytorch|profiler|execution_graph|thread]"}]}', "Chakra"),
        (b'{"workload_graph": [{"Id": 216, "NodeType": 4}]}', "Chakra execution trace"),
        (b'{"step": {"hcom_send_": {"Communication Time Info": {}}}}', "summary of Ascend's profiler.*kernel_details"),
        (b"Step,Type,Index,Computing,Free\n", "summary of Ascend's profiler"),
        (b"\x0a\xef\xbf\xbd\x08\x02\x12\x0a/device:TPU:0\x1a" + b"\xef\xbf\xbd" * 99, "copied as text"),
        (b'[{"children": [], "frame": {"name": "ROOT"}, "metrics": {}}]', "profile of Proton.*timeline"),
        (b'{"segments": [], "device_traces": []}', "memory snapshot of PyTorch.*memory_viz"),
        (b"\x80\x04\x95\x00\x00}\x8c\x08segments", "memory snapshot of PyTorch"),
        (b"\x0a\x20\x08\x01", "perhaps a Perfetto protobuf"),
    ],
)
def test_what_is_no_capture_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "what.bin"
    path.write_bytes(content)
    message = refused(path, message)
    assert "what.bin" in message


@pytest.mark.parametrize(
    ("name", "message"),
    [("r.nsys-rep", "nsys export --type sqlite"), ("r.ncu-rep", "Nsight Compute"), ("r.rpd", "rocprofv3")],
)
def test_reports_of_other_profilers_say_how_to_export_them(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(b"\x07\x00\x01binary")
    refused(tmp_path / name, message)


def test_raw_data_of_msprof_says_how_to_export_it(tmp_path: Path) -> None:
    (tmp_path / "PROF_000001_2026/device_0/data").mkdir(parents=True)
    (tmp_path / "PROF_000001_2026/device_0/data/stars.slice_0").write_bytes(b"\x00\x01")
    for path in (tmp_path, tmp_path / "PROF_000001_2026"):
        refused(path, r"raw data of msprof.*--export=on")


def test_a_path_that_is_not_there_is_reported(tmp_path: Path) -> None:
    refused(tmp_path / "nowhere", "no such file")


def severities(trace: Trace) -> dict[str, str]:
    return {f.what.removeprefix("unknown "): f.severity for f in symptoms_of(trace).symptoms if f.id == "unknown"}


def test_columns_of_a_kernel_table(tmp_path: Path) -> None:
    header = [*KERNEL_HEADER, "aic_mac_time(us)", "Mood"]
    trace = npuscope.read(write_kernel_table(tmp_path / "k.csv", [kernel_row()] * 3, header))
    assert trace.meta.unknown == {"column 'Mood'": 3}
    assert severities(trace) == {"column 'Mood'": "note"}  # it is kept as it is
    assert "Mood" in trace.slices.columns


def test_header_keys_of_json(tmp_path: Path) -> None:
    path = write_events(tmp_path / "t.json", [x("k", 0, 1)], displayTimeUnit="ns", mood="good", more=[1, 2, 3])
    trace = npuscope.read(path)
    assert trace.meta.unknown == {"header key 'mood'": 1, "header key 'more'": 3}
    assert severities(trace) == {"header key 'mood'": "note", "header key 'more'": "warning"}  # a list may hold records


def test_categories_of_a_torch_trace(tmp_path: Path) -> None:
    events = [x("op", 0, 9, cat="cpu_op"), x("k", 1, 2, cat="kernel", pid=0, tid=7), x("w", 3, 1, cat="warp_event")]
    trace = npuscope.read(write_events(tmp_path / "t.json", events, deviceProperties=[]))
    assert trace.meta.unknown == {"category 'warp_event'": 1}
    assert severities(trace) == {"category 'warp_event'": "warning"}


@pytest.mark.parametrize("view", ["Ascend Hardware", "Worker View"])
def test_processes_of_timelines(tmp_path: Path, view: str) -> None:
    events = [*named(view, "AIC_0"), x("k", 0, 1), *named("Mood", "M", pid=2), x("m", 0, 1, pid=2)]
    events += [count("c", 0, pid=2, tid=3, value=1), *named("Empty", pid=4)]
    trace = npuscope.read(write_events(tmp_path / "t.json", events))
    assert trace.meta.unknown == {"process 'Mood'": 2}
    assert severities(trace) == {"process 'Mood'": "warning"}


def test_phases_of_events(tmp_path: Path) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [x("k", 0, 1), {"ph": "Q"}, {"ph": "N"}, {"ph": "Q"}]))
    assert trace.meta.unknown == {"event phase 'Q'": 2}
    assert sum(trace.meta.dropped.values()) == 3


def test_keys_of_a_bundle_and_its_names(tmp_path: Path) -> None:
    root = write_bundle(tmp_path / "tracr", {1: point(0, 0, 5) + point(0, 65535, 9)}, markerLabels=["A"], mood="good")
    (tmp_path / "name_map_x.json").write_text(json.dumps({"callable_id_to_name": {}, "level": 2, "moods": [1, 2]}))
    assert npuscope.read(root).meta.unknown == {"key of metadata.json 'mood'": 1, "key of a name map 'moods'": 2}


def test_keys_and_files_of_our_own_folder(tmp_path: Path) -> None:
    npuscope.read(write_kernel_table(tmp_path / "k.csv", [kernel_row()])).write(tmp_path / "o.npu")
    meta = json.loads((tmp_path / "o.npu/meta.json").read_text())
    (tmp_path / "o.npu/meta.json").write_text(json.dumps({**meta, "mood": 1}))
    (tmp_path / "o.npu/waits.parquet").write_bytes(b"")
    trace = npuscope.read(tmp_path / "o.npu")
    assert trace.meta.unknown == {"key of meta.json 'mood'": 1, "file 'waits.parquet'": 1}
    assert set(severities(trace).values()) == {"note"}


def test_names_that_would_move_a_cursor_are_not_obeyed(tmp_path: Path) -> None:
    trace = npuscope.read(write_events(tmp_path / "t.json", [], **{"\x1b[2J" + "long" * 100: 1}))
    (what,) = severities(trace)
    assert "\x1b" not in what
    assert len(what) < 120


def test_everything_in_captures_is_known(any_capture: Path) -> None:
    assert npuscope.read(any_capture).meta.unknown == {}


class Truth(NamedTuple):
    """Of the device's work that counts once, or of all slices where there is none; nanoseconds."""

    format: str
    slices: int
    work: int
    lanes: int  # that the work is on
    span: int
    total: int
    union: int
    edges: int = 0


TRUTHS = {
    # twelve rows of 5.25 µs, each 7.001 µs after the one before, on two streams
    "op_summary": Truth("op_summary", 12, 12, 2, 11 * 7001 + 5250, 12 * 5250, 12 * 5250),
    # two kernels of 2.5 µs, 20 µs apart; the wait between them is the queue's
    "task_time": Truth("task_time", 3, 2, 1, 20_000 + 2500, 5000, 5000),
    # three steps 1 ms apart; in each four kernels of 40 µs every 50 µs and a copy of 8 µs
    "kineto": Truth("kineto", 42, 15, 2, 2_000_000 + 300_000 + 8000 - 30_000, 3 * (4 * 40 + 8) * 1000,
                    3 * (4 * 40 + 8) * 1000, 12),
    # two kernels of 8 µs, 10 µs apart; orders of the queue, host and analysis are no work
    "trace_view": Truth("trace_view", 5, 2, 1, 18_000, 16_000, 16_000),
    # 5 µs on the cube core from 2 µs, 2 µs on the vector core from 8 µs
    "merged_swimlane": Truth("merged-swimlane", 4, 2, 2, 8000, 7000, 7000, 1),
    # each thread hands its core three tasks, two points of 100 ns long, every 400 ns; the threads are 1 ns apart
    "tracr": Truth("tracr", 12, 6, 2, 2 * 400 + 200 + 1, 6 * 200, 3 * 201),
    # four kernels of 60 ns every 100 ns, each launched by a call
    "nsys": Truth("nsys", 8, 4, 1, 360, 240, 240, 4),
    # nine tasks of 700 ns every microsecond, on two streams
    "ascend_db": Truth("ascend-db", 9, 9, 2, 8700, 9 * 700, 9 * 700),
    # four dispatches of 400 ns every microsecond
    "rocprof": Truth("rocprofv3", 4, 4, 1, 3400, 1600, 1600),
    # at 50 MHz a cycle is 20 ns: cycles 1000 to 2000, and 2500 to 3000
    "npu": Truth("swimlane", 2, 2, 2, 40_000, 30_000, 30_000),
}  # fmt: skip


@pytest.mark.parametrize("name", TRUTHS)
def test_a_capture_of_our_own_has_the_numbers_it_was_written_with(small: dict[str, Path], name: str) -> None:
    trace = npuscope.read(small[name])
    work = trace.slices.filter(counts_once())
    start, dur = work["start"].to_numpy(), work["dur"].to_numpy()
    span = int((start + dur).max() - start.min())
    covered = union(one_group(start, start + dur)).length
    facts = (
        trace.meta.format,
        trace.slices.height,
        work.height,
        work["lane"].n_unique(),
        span,
        int(dur.sum()),
        covered,
    )
    assert Truth(*facts, trace.edges.height) == TRUTHS[name]


def test_a_root_of_ranks_has_the_work_of_each(small: dict[str, Path]) -> None:
    trace = npuscope.read(small["ranks"])
    found = trace.slices.join(trace.lanes.select("lane", "rank"), on="lane").group_by("rank").agg(
        pl.len(), pl.col("dur").sum(), pl.col("start").min()
    )  # fmt: skip
    # six rows of 7.25 µs from 1000.5 µs on, the second rank's a microsecond later
    assert sorted(found.rows()) == [(rank, 6, 6 * 7250, 1_000_500 + 1000 * rank) for rank in (0, 1)]


def test_every_layout_of_a_swimlane_has_its_tasks(small: dict[str, Path]) -> None:
    layouts = [name for name in small if name.startswith("swimlane_")]
    assert len(layouts) == 5
    for name in layouts:
        trace = npuscope.read(small[name])
        tasks = trace.slices.filter(pl.col("kind") == "task")
        assert tasks.height > 0
        assert tasks["dispatch"].null_count() == 0 or "host" in name


def test_a_decode_run_is_whole(small: dict[str, Path]) -> None:
    trace = npuscope.read(small["decode_run"])
    tasks = trace.slices.filter(pl.col("kind") == "task")
    assert tasks.select(pl.col("dispatch", "finish").null_count()).row(0) == (0, 0)
    ends = dict(tasks.group_by("task").agg((pl.col("start") + pl.col("dur")).max()).iter_rows())
    starts = dict(tasks.group_by("task").agg(pl.col("start").min()).iter_rows())
    edges = trace.edges.select("src", "dst").rows()
    assert edges
    assert all(ends[src] <= starts[dst] for src, dst in edges)  # nobody began before what it waits for had ended
