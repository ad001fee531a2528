"""A capture that cannot be diagnosed says what it has not got and what to export; waits are no compute."""

import json
from pathlib import Path

import pytest
from builders import refused, write_events, write_nsys, x

import npuscope
from npuscope import explain as analysis
from npuscope.trace import Trace


def host_only(path: Path) -> Trace:
    """A thread whose main span holds everything: 10 µs of aten::mm with 4 inside, twice, and a wait of 60."""
    calls = [x("train", 0, 100, cat="cpu_op"), x("cudaStreamSynchronize", 35, 60, cat="cuda_runtime")]
    for at in (5, 20):
        calls += [x("aten::linear", at, 10, cat="cpu_op"), x("aten::mm", at + 2, 4, cat="cpu_op")]
    return npuscope.read(write_events(path / "t.json", calls))


def test_a_trace_of_the_host_says_what_it_lacks(tmp_path: Path) -> None:
    found = analysis.explain(host_only(tmp_path)).diagnosis.verdict
    assert found.kind == "unknown"
    assert "no device work" in found.sentence
    assert "ProfilerActivity" in found.remedy
    waits, calls = found.evidence[1:]
    assert waits == "the host waits longest in `cudaStreamSynchronize` 60 µs in 1 call"
    # of its own: 100 − 60 − 2 × 10 of train, 10 − 4 of each linear, 4 of each mm
    assert calls == "the host spends most time in `train` 20 µs in 1 call, `aten::linear` 12 µs in 2 calls, " + (
        "`aten::mm` 8 µs in 2 calls"
    )


def test_a_trace_of_the_host_is_not_cut_to_a_run(tmp_path: Path) -> None:
    calls = [x("load", 0, 100, cat="cpu_op"), x("stop", 5000, 1, cat="cpu_op")]
    found = analysis.explain(npuscope.read(write_events(tmp_path / "t.json", calls))).diagnosis
    assert found.verdict.sentence.startswith("This capture has no device work")
    assert len(found.causes) == 1


def test_umbrellas_are_no_work_and_nested_spans_count_once(tmp_path: Path) -> None:
    busy = analysis.explain(host_only(tmp_path)).busy
    assert dict(busy.kernels.select("kernel", "core_ns").iter_rows()) == {
        "cudaStreamSynchronize": 60_000, "aten::linear": 20_000,
    }  # fmt: skip


def test_an_nsys_export_without_kernels(tmp_path: Path) -> None:
    ranges = [{"start": 0, "end": 90, "eventType": 59, "textId": 1, "globalTid": 5}]
    reads = [{"start": 10, "end": 30, "globalTid": 5, "nameId": 2}]
    path = write_nsys(tmp_path / "r.sqlite", {1: "forward", 2: "read"}, NVTX_EVENTS=ranges, OSRT_API=reads)
    assert "--trace=cuda" in analysis.explain(npuscope.read(path)).diagnosis.verdict.remedy


@pytest.mark.parametrize("entries", [[[1, 2], [3, 4]], [1, 2, 3], [{"name": "a", "value": 3}]])
def test_a_json_list_that_is_no_trace_is_refused(tmp_path: Path, entries: list[object]) -> None:
    (tmp_path / "t.json").write_text(json.dumps(entries))
    refused(tmp_path / "t.json", f"a JSON list of {len(entries)} entries of which none is a trace event")


def test_an_empty_capture_says_so(tmp_path: Path) -> None:
    found = analysis.explain(npuscope.read(write_events(tmp_path / "t.json", []))).diagnosis.verdict
    assert "empty" in found.sentence


def test_waits_of_a_device_are_no_compute(tmp_path: Path) -> None:
    # GIVEN a kernel of 20 µs, and 80 µs in which the device waits for an event
    events = [
        x("pe_exe", 0, 20, pid=0, tid=1, cat="mtia_ccp_events"),
        x("event_wait", 20, 80, pid=0, tid=1, cat="mtia_ccp_events"),
    ]
    events.append(x("aten::mm", 0, 1, cat="cpu_op"))
    found = analysis.explain(npuscope.read(write_events(tmp_path / "t.json", events)))
    assert found.busy.kernels["kernel"].to_list() == ["pe_exe"]
    assert found.compute_ns == 20_000
