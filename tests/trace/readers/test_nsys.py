"""Nsight Systems' SQLite export, on databases of our own making."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from builders import balanced, refused, write_nsys
from hypothesis import example, given
from hypothesis import strategies as st

import npuscope
from npuscope.explain import explain_ranks
from npuscope.explain.doctor import symptoms_of

STRINGS = {
    1: "void gemm<float>(int)", 2: "gemm", 3: "ncclDevKernel_AllReduce_Sum_bf16", 4: "cudaLaunchKernel_v7000",
    5: "cudaGraphLaunch_v10000", 6: "forward", 7: "read", 8: "worker",
}  # fmt: skip
PROCESS = 7 << 24  # a global process id; threads are added to it
KERNELS = [
    {"start": 100, "end": 180, "deviceId": 0, "contextId": 1, "streamId": 7, "correlationId": 11, "globalPid": PROCESS,
     "demangledName": 1, "shortName": 2, "gridX": 8},
    {"start": 200, "end": 260, "deviceId": 0, "contextId": 1, "streamId": 8, "correlationId": 12, "globalPid": PROCESS,
     "demangledName": 3, "shortName": 3, "gridX": 1},
    {"start": 270, "end": 280, "deviceId": 1, "contextId": 1, "streamId": 7, "correlationId": 12, "globalPid": PROCESS,
     "demangledName": 1, "shortName": 2, "gridX": 8},
]  # fmt: skip
CALLS = [
    {"start": 50, "end": 60, "globalTid": PROCESS + 9, "correlationId": 11, "nameId": 4, "returnValue": 0},
    {"start": 70, "end": 90, "globalTid": PROCESS + 9, "correlationId": 12, "nameId": 5, "returnValue": 0},
    {"start": 71, "end": 72, "globalTid": (8 << 24) + 9, "correlationId": 11, "nameId": 4, "returnValue": 0},
]
COPIES = [
    {"start": 10, "end": 30, "deviceId": 0, "streamId": 7, "correlationId": 10, "globalPid": PROCESS, "bytes": 64,
     "copyKind": 1},
]  # fmt: skip
SESSION: dict[str, Any] = {
    "CUPTI_ACTIVITY_KIND_KERNEL": KERNELS,
    "CUPTI_ACTIVITY_KIND_RUNTIME": CALLS,
    "CUPTI_ACTIVITY_KIND_MEMCPY": COPIES,
    "CUPTI_ACTIVITY_KIND_MEMSET": [{"start": 40, "end": 45, "deviceId": 0, "streamId": 7, "bytes": 8, "value": 0}],
    "NVTX_EVENTS": [
        {"start": 5, "end": 95, "eventType": 59, "textId": 6, "globalTid": PROCESS + 9},
        {"start": 6, "end": None, "eventType": 60, "text": "open", "globalTid": PROCESS + 9},
        {"start": 7, "end": None, "eventType": 34, "text": "mark", "globalTid": PROCESS + 9},
        {"start": 0, "end": None, "eventType": 75, "text": "NCCL", "globalTid": PROCESS + 9},
    ],
    "OSRT_API": [{"start": 1, "end": 3, "globalTid": PROCESS + 9, "nameId": 7}],
    "GPU_METRICS": [
        {"timestamp": 100, "typeId": 256, "metricId": 2, "value": 97},
        {"timestamp": 200, "typeId": 256, "metricId": 2, "value": "much"},
    ],
    "TARGET_INFO_GPU_METRICS": [{"typeId": 256, "typeName": "GH100", "metricId": 2, "metricName": "SM Active [%]"}],
    "TARGET_INFO_GPU": [{"id": 0, "name": "H100"}],
    "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000_000_000_000, "utcTime": "x"}],
    "ThreadNames": [{"nameId": 8, "globalTid": PROCESS + 9}],
    "ENUM_CUDA_MEMCPY_OPER": [{"id": 1, "label": "Host-to-Device"}],
}


def test_a_session_becomes_streams_threads_and_ranges(tmp_path: Path) -> None:
    trace = npuscope.read(write_nsys(tmp_path / "r.sqlite", STRINGS, **SESSION))
    assert (trace.meta.format, trace.meta.device, trace.meta.clock) == ("nsys", "H100", "since the session began")
    shown = trace.slices.join(trace.lanes, on="lane").sort("start")
    assert shown.select("name", "device", "kind", "kernel", "start", "dur").rows() == [
        ("process 7 thread 9 OS runtime", None, "host", "read", 1, 2),
        ("process 7 thread 9 NVTX", None, "derived", "forward", 5, 90),
        ("process 7 thread 9 NVTX", None, "derived", "open", 6, 89),  # it never ended: to the last event
        ("stream 7", 0, "copy", "Memcpy HtoD", 10, 20),
        ("stream 7", 0, "copy", "Memset", 40, 5),
        ("process 7 thread 9", None, "host", "cudaLaunchKernel_v7000", 50, 10),
        ("process 7 thread 9", None, "host", "cudaGraphLaunch_v10000", 70, 20),
        ("process 8 thread 9", None, "host", "cudaLaunchKernel_v7000", 71, 1),
        ("stream 7", 0, "task", "void gemm<float>(int)", 100, 80),
        ("stream 8", 0, "comm", "ncclDevKernel_AllReduce_Sum_bf16", 200, 60),
        ("stream 7", 1, "task", "void gemm<float>(int)", 270, 10),
    ]
    assert shown.filter(pl.col("start") == 100).select("gridX", "correlationId").row(0) == (8, 11)
    # a call launches what has its correlation in its own process; a graph launches several
    names = dict(trace.slices.select("task", "start").iter_rows())
    assert sorted((names[a], names[b]) for a, b in trace.edges.select("src", "dst").rows()) == [
        (50, 100), (70, 200), (70, 270),
    ]  # fmt: skip
    samples = trace.counters.join(trace.lanes.select("lane", place="name"), on="lane")
    assert samples.select("place", "name", "time", "value").rows() == [
        ("GPU metrics GH100", "SM Active [%]", 100, 97.0)
    ]
    assert trace.meta.dropped == {"instant event": 1, "sample without a usable time or number": 1}
    assert trace.meta.merged == {"NVTX event names a domain or a category": 1}
    assert trace.meta.notes["session_start_utc_ns"] == 1_700_000_000_000_000_000
    assert trace.meta.unknown == {}
    assert balanced(trace)
    explain_ranks(trace)


def test_a_table_of_kernels_alone_is_enough(tmp_path: Path) -> None:
    kernels: list[Any] = [{"start": 1, "end": 5, "shortName": 2}, {"start": None, "end": 9, "shortName": 2}]
    trace = npuscope.read(write_nsys(tmp_path / "r.sqlite", STRINGS, CUPTI_ACTIVITY_KIND_KERNEL=kernels))
    assert trace.slices.select("kernel", "start", "dur").rows() == [("gemm", 1, 4)]
    assert trace.lanes["name"].to_list() == ["stream unknown"]
    assert trace.meta.dropped == {"row without a usable time": 1}
    assert balanced(trace)


@pytest.mark.parametrize(
    ("tables", "what", "severity"),
    [
        ({"MOODS": [{"a": 1}, {"a": 2}]}, "table 'MOODS'", "warning"),
        (
            {"CUPTI_ACTIVITY_KIND_KERNEL": [{**KERNELS[0], "mood": 1}, KERNELS[1]]},
            "column of CUPTI_ACTIVITY_KIND_KERNEL 'mood'",
            "note",
        ),
    ],
)
def test_what_nobody_knows_is_reported(tmp_path: Path, tables: dict[str, Any], what: str, severity: str) -> None:
    trace = npuscope.read(write_nsys(tmp_path / "r.sqlite", STRINGS, **{**SESSION, **tables}))
    assert trace.meta.unknown == {what: 2}
    assert [f.severity for f in symptoms_of(trace).symptoms if f.id == "unknown"] == [severity]


def test_other_databases_are_named_for_what_they_are(tmp_path: Path) -> None:
    write_nsys(tmp_path / "n.db", {}, StringTable=[{"_id_": 1}])
    refused(tmp_path / "n.db", "nvprof")
    write_nsys(tmp_path / "o.db", {}, songs=[{"name": "x"}])
    refused(tmp_path / "o.db", "nor one of Nsight Systems'")


cell = st.one_of(st.integers(-5, 10**12), st.none(), st.text(max_size=2), st.floats(), st.integers(2**62, 2**63 - 1))
row = st.dictionaries(
    st.sampled_from(["start", "end", "deviceId", "streamId", "correlationId", "globalTid", "globalPid", "nameId",
                     "demangledName", "copyKind", "textId", "text", "eventType"]), cell, min_size=1,
)  # fmt: skip
tables = st.dictionaries(
    st.sampled_from(["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_RUNTIME",
                     "NVTX_EVENTS", "OSRT_API", "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"]),
    st.lists(row, min_size=1, max_size=6), min_size=1,
)  # fmt: skip


@given(tables)
@example({"CUPTI_ACTIVITY_KIND_KERNEL": [{"start": 0}], "NVTX_EVENTS": [{"deviceId": None}]})
def test_every_row_is_accounted_for(tmp_path_factory: pytest.TempPathFactory, tables: dict[str, Any]) -> None:
    trace = npuscope.read(write_nsys(tmp_path_factory.mktemp("n") / "r.sqlite", STRINGS, **tables))
    assert trace.meta.records == sum(map(len, tables.values()))
    assert balanced(trace)
    assert (trace.slices["dur"] >= 0).all()
    assert trace.slices["kernel"].null_count() == 0
