"""Profiles of XLA: XPlane files made here byte by byte, and the trace viewer's JSON of the same run."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import Any

import polars as pl
from builders import balanced, named, refused, write_events, x

import npuscope
from npuscope.explain import explain
from npuscope.trace import Trace


def varint(value: int) -> bytes:
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def message(*fields: tuple[int, Any]) -> bytes:
    """A protobuf message: whole numbers, text, bytes and floats by field number."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts.append(varint(number << 3) + varint(value))
        elif isinstance(value, float):
            parts.append(varint(number << 3 | 1) + struct.pack("<d", value))
        else:
            data = value.encode() if isinstance(value, str) else value
            parts.append(varint(number << 3 | 2) + varint(len(data)) + data)
    return b"".join(parts)


STATS = ["", "step_num", "correlation_id", "hlo_op", "occupancy"]


def stat(name: str, value: Any) -> tuple[int, bytes]:
    kind = 4 if isinstance(value, int) else 2 if isinstance(value, float) else 5
    return (4, message((1, STATS.index(name)), (kind, value)))


def event(kind: int, start_ns: float, dur_ns: float, *stats: tuple[int, bytes]) -> tuple[int, bytes]:
    return (4, message((1, kind), (2, round(start_ns * 1000)), (3, round(dur_ns * 1000)), *stats))


def line(number: int, name: str, *events: tuple[int, bytes]) -> tuple[int, bytes]:
    return (3, message((1, number), (2, name), (3, 1_000_000), *events))  # begins 1 ms after the epoch


def plane(name: str, kinds: list[str], *lines: tuple[int, bytes]) -> tuple[int, bytes]:
    events = [(4, message((1, n), (2, message((1, n), (2, kind))))) for n, kind in enumerate(kinds)]
    stats = [(5, message((1, n), (2, message((1, n), (2, one))))) for n, one in enumerate(STATS)]
    return (1, message((1, 7), (2, name), *lines, *events, *stats))


# two steps of the host, each launches one kernel; the second kernel runs after its step has ended
GPU = plane(
    "/device:GPU:0",
    ["gemm", "fused_add"],
    line(13, "Stream #13(Compute)", event(0, 500, 400, stat("correlation_id", 1), stat("hlo_op", "dot.1")),
         event(1, 2600, 100.4, stat("correlation_id", 2), stat("occupancy", 0.5))),
    line(99, "XLA Modules", event(0, 500, 2200)),
)  # fmt: skip
HOST = plane(
    "/host:CPU",
    ["train", "cuLaunchKernel"],
    line(1, "python", event(0, 0, 1000, stat("step_num", 7)), event(0, 1500, 1000, stat("step_num", 8)),
         event(1, 100, 50, stat("correlation_id", 1)), event(1, 1600, 50, stat("correlation_id", 2))),
)  # fmt: skip


def work(trace: Trace) -> list[tuple[str, int, int, int | None]]:
    rows = trace.slices.filter(pl.col("kind") == "task").sort("start")
    return list(rows.select("kernel", "start", "dur", "step").iter_rows())


def test_an_xplane_file_has_streams_steps_and_launches(tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(message(GPU, HOST))
    trace = npuscope.read(path)
    assert work(trace) == [("gemm", 1_000_500, 400, 7), ("fused_add", 1_002_600, 100, 8)]
    lanes = trace.lanes.select("name", "unit", "device", "process").rows()
    assert lanes[0] == ("Stream #13(Compute)", "stream", 0, "/device:GPU:0")
    assert dict(trace.slices["kind"].value_counts().iter_rows()) == {"task": 2, "derived": 1, "host": 4}
    assert trace.edges["name"].to_list() == ["launch", "launch"]
    assert balanced(trace)
    assert '"hlo_op": "dot.1"' in trace.slices.filter(pl.col("kernel") == "gemm")["args"][0]
    assert explain(trace).steps.source == "column"
    packed = tmp_path / "packed.pb.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert work(npuscope.read(packed)) == work(trace)


def test_a_tpus_work_is_its_operations_and_a_loop_is_what_it_holds(tmp_path: Path) -> None:
    tpu = plane(
        "/device:TPU:1",
        ["while", "fusion", "all-reduce", "3", "4"],
        line(1, "Steps", event(3, 0, 1000), event(4, 1000, 1000)),
        line(2, "XLA Ops", event(0, 0, 900), event(1, 100, 300), event(2, 500, 300), event(1, 1200, 50)),
        line(3, "Framework Ops", event(1, 0, 2000)),
    )
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(message(tpu))
    trace = npuscope.read(path)
    rows = trace.slices.filter(pl.col("kind").is_in(["task", "comm"])).sort("start")
    assert rows.select("kernel", "kind", "dur", "step").rows() == [
        ("fusion", "task", 300, 3), ("all-reduce", "comm", 300, 3), ("fusion", "task", 50, 4),
    ]  # fmt: skip
    assert trace.lanes["device"].unique().to_list() == [1]
    assert explain(trace).work.wall == 1250 - 100


def test_the_trace_viewers_json_of_the_same_run_says_the_same(tmp_path: Path) -> None:
    events = [
        *named("/device:GPU:0", "Stream #13(Compute)", pid=1, tid=13),
        *named(None, "XLA Modules", pid=1, tid=99),
        *named("/host:CPU", "python", pid=701, tid=1),
        x("gemm", 1000.5, 0.4, pid=1, tid=13, args={"correlation_id": "1", "hlo_op": "dot.1"}),
        x("fused_add", 1002.6, 0.1, pid=1, tid=13, args={"correlation_id": "2"}),
        x("jit_step", 1000.5, 2.2, pid=1, tid=99),
        x("train", 1000, 1, pid=701, tid=1, args={"step_num": "7"}),
        x("train", 1001.5, 1, pid=701, tid=1, args={"step_num": "8"}),
        x("cuLaunchKernel", 1000.1, 0.05, pid=701, tid=1, args={"correlation_id": "1"}),
        x("cuLaunchKernel", 1001.6, 0.05, pid=701, tid=1, args={"correlation_id": "2"}),
    ]
    trace = npuscope.read(write_events(tmp_path / "host.trace.json", events))
    assert trace.meta.format == "xla-viewer"
    assert work(trace) == [("gemm", 1_000_500, 400, 7), ("fused_add", 1_002_600, 100, 8)]
    assert trace.edges["name"].to_list() == ["launch", "launch"]


def test_a_profile_folder_is_read_once_and_hosts_are_ranks(tmp_path: Path) -> None:
    for host in ("a", "b"):
        (tmp_path / f"{host}.xplane.pb").write_bytes(message(GPU, HOST))
        write_events(tmp_path / f"{host}.trace.json", [*named("/host:CPU", "python"), x("step", 0, 1.5)])
    trace = npuscope.read(tmp_path)
    assert trace.lanes["rank"].unique().sort().to_list() == [0, 1]
    assert trace.slices.filter(pl.col("kind") == "task").height == 4


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cut.xplane.pb").write_bytes(message(GPU, HOST)[:-9])
    refused(tmp_path / "cut.xplane.pb", "not an XPlane file of XLA")
