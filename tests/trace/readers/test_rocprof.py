"""rocprofv3's JSON, on files of our own making."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from builders import balanced, refused
from hypothesis import given
from hypothesis import strategies as st

import npuscope
from npuscope.explain import explain

GPU, CPU = {"handle": 900}, {"handle": 800}
DISPATCH = {
    "size": 136, "kind": 11, "operation": 1, "thread_id": 5, "correlation_id": {"internal": 3, "external": 0},
    "start_timestamp": 1_000, "end_timestamp": 1_400,
    "dispatch_info": {"agent_id": GPU, "queue_id": {"handle": 2}, "kernel_id": 17, "dispatch_id": 1},
}  # fmt: skip
COPY = {
    "kind": 1, "operation": 1, "correlation_id": {"internal": 4}, "start_timestamp": 2_000, "end_timestamp": 2_100,
    "dst_agent_id": GPU, "src_agent_id": CPU, "bytes": 64,
}  # fmt: skip
CALL = {
    "kind": 0, "operation": 1, "thread_id": 5, "correlation_id": {"internal": 3}, "start_timestamp": 900,
    "end_timestamp": 950,
}  # fmt: skip
ENTRY: dict[str, Any] = {
    "metadata": {"pid": 5},
    "agents": [{"id": CPU, "type": 1}, {"id": GPU, "type": 2, "product_name": "MI300X"}],
    "kernel_symbols": [{"kernel_id": 17, "kernel_name": "gemm.kd", "formatted_kernel_name": "gemm(int) [clone .kd]"}],
    "strings": {
        "buffer_records": [
            {"kind": "HIP_RUNTIME_API", "operations": ["none", "hipLaunchKernel"]},
            {"kind": "MEMORY_COPY", "operations": ["none", "MEMORY_COPY_HOST_TO_DEVICE"]},
        ]
    },
    "buffer_records": {
        "kernel_dispatch": [DISPATCH],
        "memory_copy": [COPY],
        "hip_api": [CALL],
        "pc_sample_host_trap": [{"record": {}}],
    },
    "callback_records": {"counter_collection": []},
}


def write(path: Path, *entries: dict[str, Any], **more: Any) -> Path:
    path.write_text(json.dumps({"rocprofiler-sdk-tool": list(entries), **more}))
    return path


def test_dispatches_copies_and_calls(tmp_path: Path) -> None:
    trace = npuscope.read(write(tmp_path / "r.json", ENTRY))
    assert (trace.meta.format, trace.meta.device) == ("rocprofv3", "MI300X")
    shown = trace.slices.join(trace.lanes, on="lane").select("name", "unit", "device", "kernel", "kind", "start", "dur")
    assert shown.sort("start").rows() == [
        ("process 0 thread 5", "host", None, "hipLaunchKernel", "host", 900, 50),
        ("queue 2", "stream", 0, "gemm(int) [clone .kd]", "task", 1_000, 400),
        ("copies", "stream", 0, "MEMORY_COPY_HOST_TO_DEVICE", "copy", 2_000, 100),
    ]
    kernels = dict(trace.slices.select("task", "kernel").iter_rows())
    assert [(kernels[a], kernels[b]) for a, b in trace.edges.select("src", "dst").rows()] == [
        ("hipLaunchKernel", "gemm(int) [clone .kd]")
    ]
    assert trace.meta.dropped == {"pc_sample_host_trap record": 1}
    assert trace.meta.unknown == {}
    assert balanced(trace)
    explain(trace)


def test_processes_do_not_share_correlations(tmp_path: Path) -> None:
    other = copy.deepcopy(ENTRY)
    other["buffer_records"] = {"hip_api": [CALL]}
    trace = npuscope.read(write(tmp_path / "r.json", ENTRY, other))
    assert trace.edges.height == 1
    assert "process 1 thread 5" in trace.lanes["name"].to_list()


def test_what_nobody_knows_is_reported(tmp_path: Path) -> None:
    entry = copy.deepcopy(ENTRY)
    entry["mood"] = "good"
    entry["buffer_records"]["moods"] = [CALL, CALL]
    assert npuscope.read(write(tmp_path / "r.json", entry, more=[1, 2])).meta.unknown == {
        "top-level key 'more'": 2,
        "key of a process 'mood'": 1,
        "section 'moods'": 2,
    }


@pytest.mark.parametrize(
    "text", ['{"rocprofiler-sdk-tool": 1}', '{"rocprofiler-sdk-tool": [1]}', '{"rocprofiler-sdk-tool": [']
)
def test_broken_files_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "r.json").write_text(text)
    refused(tmp_path / "r.json", "rocprofv3")


anything = st.one_of(
    st.none(), st.integers(-5, 5000), st.integers(2**62, 2**70), st.text(max_size=2), st.just({"handle": 900})
)
record = st.dictionaries(
    st.sampled_from(["kind", "operation", "thread_id", "correlation_id", "start_timestamp", "end_timestamp",
                     "dispatch_info", "dst_agent_id"]), anything,
)  # fmt: skip
sections = st.dictionaries(
    st.sampled_from([*ENTRY["buffer_records"], "marker_api", "scratch_memory", "moods"]), st.lists(record)
)


@given(sections)
def test_every_record_is_accounted_for(tmp_path_factory: pytest.TempPathFactory, sections: dict[str, Any]) -> None:
    trace = npuscope.read(write(tmp_path_factory.mktemp("r") / "r.json", {**ENTRY, "buffer_records": sections}))
    assert trace.meta.records == sum(map(len, sections.values()))
    assert balanced(trace)
    assert trace.slices["kernel"].null_count() == 0
