"""What holds for every format: records in = slices + samples + merged + dropped, unknown things reported; npuscope's
own folder gives back exactly what was read. Formats whose files have an account of their own are tested beside it:
kernel tables, databases, rocprofv3, TraCR, swimlanes of 2026."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import balanced, kernel_row, named, point, write_bundle, write_events, write_kernel_table, write_swimlane
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope.trace import Trace

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
    told = DIALECTS[dialect]
    folder = tmp_path_factory.mktemp("json")
    lanes = [event for pid, process in enumerate(told["processes"]) for event in named(process, f"AIC_{pid}", pid=pid)]
    found = [_event(event, told["categories"]) for event in drawn]
    trace = npuscope.read(write_events(folder / "t.json", [*lanes, *found], **told["header"], **more))
    assert trace.meta.format == dialect.split(" ")[0]
    # THEN every event is somewhere; a counter event has a record for each of its numbers
    series = sum(len(event["args"]) - 1 for event in found if event["ph"] == "C" and event["ts"] is not None)
    assert trace.meta.records == len(lanes) + len(found) + series
    check(trace, folder)
    # and what nobody knows is told
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


def check(trace: Trace, folder: Path) -> None:
    """The account balances, every slice has a lane, and our own folder gives back what was read."""
    assert balanced(trace)
    assert trace.slices["lane"].is_in(trace.lanes["lane"].implode()).all()
    assert (trace.slices["dur"] >= 0).all()
    for column in ("start", "dur", "kernel", "kind"):
        assert trace.slices[column].null_count() == 0
    trace.write(folder / "o.npu")
    back = npuscope.read(folder / "o.npu")
    for table in ("slices", "lanes", "edges", "counters"):
        assert getattr(back, table).equals(getattr(trace, table)), table
    for account in ("format", "records", "merged", "dropped", "marked", "repaired", "unknown"):
        assert getattr(back.meta, account) == getattr(trace.meta, account)


rows = st.tuples(*[st.integers(0, 5)] * 3, st.integers(0, 500), st.integers(0, 500), st.integers(0, 2)).map(list)
seen = st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(0, 500), st.integers(0, 500)).map(list)


@given(ran=st.lists(rows, max_size=8), stamps=st.lists(seen, max_size=8), more=st.booleans())
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
    alone = []
    for rank, what in enumerate(drawn):
        place = folder / "in" / f"rank{rank}"
        place.mkdir(parents=True)
        if what == "table":
            alone.append(write_kernel_table(place / "kernel_details.csv", [kernel_row()] * (rank + 1)))
        elif what == "timeline":
            kernel = {"ph": "X", "name": "k", "pid": 0, "tid": 7, "ts": rank, "dur": 1, "cat": "kernel"}
            alone.append(write_events(place / "t.json", [kernel], deviceProperties=[], mood=1))
        elif what == "bundle":
            alone.append(write_bundle(place / "tracr", {1: point(0, 0, 5) + point(0, 65535, 9)}, markerLabels=["A"]))
        else:
            (place / "notes.strange").write_text("nothing")
    if not alone:
        with pytest.raises(npuscope.NpuscopeError, match="no capture"):
            npuscope.read(folder / "in")
        return
    trace, single = npuscope.read(folder / "in"), [npuscope.read(path) for path in alone]
    assert trace.meta.records == sum(one.meta.records for one in single)
    assert trace.slices.height == sum(one.slices.height for one in single)
    assert trace.meta.unknown.get("header key 'mood'", 0) == drawn.count("timeline")
    assert sum(n for what, n in trace.meta.unknown.items() if "strange" in what) == drawn.count("nothing")
    check(trace, folder)
