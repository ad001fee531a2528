"""Profiles of XLA: XPlane files made here byte by byte, and the trace viewer's JSON of the same run."""

import gzip
from pathlib import Path

import polars as pl
from builders import balanced, named, refused, write_events, x
from xla_profiles import GPU, HOST, event, line, message, plane, viewer, xplane

import npuscope
from npuscope.explain import explain
from npuscope.trace import Trace


def work(trace: Trace) -> list[tuple[str, int, int, int | None]]:
    rows = trace.slices.filter(pl.col("kind") == "task").sort("start")
    return list(rows.select("kernel", "start", "dur", "step").iter_rows())


def test_an_xplane_file_has_streams_steps_and_launches(tmp_path: Path) -> None:
    path = xplane(tmp_path)
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
    trace = npuscope.read(viewer(tmp_path))
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
