"""Compute, communication and copies are three things: what covers what, and what is called the bound."""

import csv
from pathlib import Path

import command
import pytest
from builders import kernel_row, named, write_events, write_kernel_table, x
from hypothesis import given
from hypothesis import strategies as st
from made import Task, made

import npuscope
from npuscope import explain as analysis
from npuscope.explain.hidden_exposed import Communication, Copies
from npuscope.trace import Trace

DISPATCH = "void deep_ep::internode::dispatch<false, 1, false>(int4*, float*)"


def gpu(tmp_path: Path, *events: tuple[str, int, int, int, str]) -> Trace:
    """A torch profile; each event is (kernel, start, duration, stream, category), in microseconds."""
    device = [
        x(name, ts, dur, pid=0, tid=stream, cat=cat, args={"stream": stream}) for name, ts, dur, stream, cat in events
    ]
    call = x("cudaLaunchKernel", 0, 1, cat="cuda_runtime")
    return npuscope.read(write_events(tmp_path / "trace.json", [call, *device], deviceProperties=[{"name": "GPU"}]))


def ns(us: float) -> int:
    return round(us * 1000)


@pytest.mark.parametrize(
    "collective",
    [
        "multimem_all_reduce_kernel",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>",
        "void (anonymous namespace)::two_shot_all_reduce_kernel<c10::BFloat16, 16, 8>",
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<__hip_bfloat16>>",
        "nvshmemx_barrier_all_kernel",
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
        DISPATCH,
    ],
)
def test_collectives_of_every_library_are_communication(tmp_path: Path, collective: str) -> None:
    """Ten of thirty microseconds run beside a product; the rest is exposed."""
    found = analysis.explain(
        gpu(tmp_path, ("gemm_dispatch_kernel", 0, 40, 7, "kernel"), (collective, 30, 30, 20, "kernel"))
    )
    assert found.communication == Communication(ns(30), ns(10), ns(20), ns(40))


def test_copies_are_neither_compute_nor_cover_for_communication(tmp_path: Path) -> None:
    trace = gpu(
        tmp_path,
        ("gemm", 0, 10, 7, "kernel"),
        (DISPATCH, 5, 25, 20, "kernel"),  # 5 beside the product, 20 exposed
        ("Memcpy DtoH", 20, 20, 21, "gpu_memcpy"),  # 10 beside the exchange, 10 beside nothing
        ("Memset (Device)", 50, 5, 7, "gpu_memset"),
    )
    assert trace.slices["kind"].to_list() == ["host", "task", "comm", "copy", "copy"]
    found = analysis.explain(trace)
    assert found.communication == Communication(ns(25), ns(5), ns(20), ns(10))
    assert found.copies == Copies(ns(25), ns(10), ns(15))
    on_path = dict(found.path.by_kernel().select("kernel", "path_ns").iter_rows())
    assert on_path == {
        "gemm": ns(10),
        DISPATCH: ns(20),
        "Memcpy DtoH": ns(10),
        "Memset (Device)": ns(5),
    }
    assert found.as_dict()["copies"] == {"on_engine_ns": ns(25), "hidden_ns": ns(10), "exposed_ns": ns(15)}


@pytest.mark.parametrize(
    ("comm", "copy", "bound"),
    [(50, 10, "communication"), (10, 50, "copy"), (20, 20, "communication"), (39, 42, "copy")],
)
def test_the_verdict_names_what_nothing_hides(tmp_path: Path, comm: int, copy: int, bound: str) -> None:
    trace = gpu(
        tmp_path,
        ("gemm", 0, 30, 7, "kernel"),
        ("ncclDevKernel_SendRecv", 30, comm, 20, "kernel"),
        ("Memcpy HtoD (Pageable -> Device)", 30 + comm, copy, 21, "gpu_memcpy"),
    )
    found = analysis.explain(trace).diagnosis
    assert found.bound == bound
    shares = {cause.kind: cause.share for cause in found.causes}
    whole = 30 + comm + copy
    assert shares == pytest.approx({"core": 30 / whole, "communication": comm / whole, "copy": copy / whole})


def test_every_report_tells_communication_and_copies(tmp_path: Path) -> None:
    copy = ("Memcpy HtoD", 40, 5, 21, "gpu_memcpy")
    gpu(tmp_path, ("gemm", 0, 30, 7, "kernel"), (DISPATCH, 30, 10, 20, "kernel"), copy)
    page, posted = tmp_path / "report.html", tmp_path / "report.md"
    run = command.npuscope("report", tmp_path / "trace.json", "--md", posted, "--html", page)
    for text in (run.stdout, posted.read_text()):
        assert "communication 10 µs, 10 µs of it not covered by compute; compute 30 µs" in text
        assert "copies 5 µs, 5 µs of it not covered by other work" in text
    assert '"copies":{"on_engine_ns":5000' in page.read_text()


def test_hardware_copies_of_an_ascend_timeline(tmp_path: Path) -> None:
    """The queue's SDMA and MEMCPY_ASYNC are copies, HCCL's planes tell a collective again."""
    events = [
        *named("Ascend Hardware", "Stream 2", pid=96, tid=2), *named(None, "Stream 4", pid=96, tid=4),
        *named("HCCL", "Group 0 Communication", pid=97, tid=0), *named(None, "Plane 0", pid=97, tid=1),
        *named("Overlap Analysis", "Computing", pid=98, tid=0),
        x("MatMulV2", "0.0", 10, pid=96, tid=2), x("MEMCPY_ASYNC", "10.0", 4, pid=96, tid=2),
        x("EVENT_WAIT", "14.0", 6, pid=96, tid=2),
        x("SDMA", "5.0", 3, pid=96, tid=4), x("hcom_allReduce__1_1_1", "4.0", 8, pid=97, tid=0),
        x("Memcpy", "5.0", 3, pid=97, tid=1),
        x("Computing", "0.0", 10, pid=98, tid=0),
    ]  # fmt: skip
    path = tmp_path / "trace_view.json"
    write_events(path, events)
    kinds = dict(npuscope.read(path).slices.select("kernel", "kind").iter_rows())
    assert kinds == {
        "MatMulV2": "task", "MEMCPY_ASYNC": "copy", "EVENT_WAIT": "schedule", "SDMA": "copy",
        "hcom_allReduce__1_1_1": "comm",
        "Memcpy": "comm", "Computing": "derived",
    }  # fmt: skip


@pytest.mark.parametrize("level", ["level0", "level1", "level2"])
def test_timeline_and_table_agree_with_the_profilers_own_computing(shared: Path, level: str) -> None:
    folder = shared / "ascend" / "msinsight_cnn" / level / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    with (folder / "step_trace_time.csv").open() as file:
        told = {name: float(value) for name, value in next(csv.DictReader(file)).items() if value}
    for name in ("trace_view.json", "kernel_details.csv"):
        comm = analysis.explain(npuscope.read(folder / name)).communication
        assert comm is not None
        assert comm.compute_ns / 1000 == pytest.approx(told["Computing"], abs=0.1), name
        assert comm.on_core_ns / 1000 == pytest.approx(told["Communication"], abs=0.1), name
        assert comm.exposed_ns / 1000 == pytest.approx(told["Communication(Not Overlapped)"], abs=0.1), name


def test_copies_survive_a_kernel_table(tmp_path: Path) -> None:
    trace = gpu(tmp_path, ("gemm", 0, 10, 7, "kernel"), ("Memcpy DtoD (Device -> Device)", 10, 5, 7, "gpu_memcpy"))
    trace.write(tmp_path / "kernels.csv", "kernel_details")
    assert npuscope.read(tmp_path / "kernels.csv").slices["kind"].to_list() == ["task", "copy"]


def test_a_table_that_tells_cores_is_believed(tmp_path: Path) -> None:
    """MemSet on a vector core and MoeDistribute kernels are work of the cores, whatever they move."""
    rows = [
        kernel_row(name="MemSet_1", type="MemSet", core="AI_VECTOR_CORE"),
        kernel_row(name="MoeDistributeDispatchV2_1", type="MoeDistributeDispatchV2", core="MIX_AIV"),
        kernel_row(name="allgather_1", type="N/A", core="HCCL"),
        kernel_row(name="hcom_allReduce__1_1", type="N/A", core="N/A"),
    ]
    trace = npuscope.read(write_kernel_table(tmp_path / "kernel_details.csv", rows))
    assert trace.slices["kind"].to_list() == ["task", "task", "comm", "comm"]


spans = st.tuples(st.sampled_from(["task", "comm", "copy"]), st.integers(0, 60), st.integers(1, 20))


@given(st.lists(spans, min_size=1, max_size=12))
def test_the_window_is_compute_exposed_communication_exposed_copies_and_idle(drawn: list[tuple[str, int, int]]) -> None:
    tasks = [
        Task(n, f"{kind}{n}", f"stream_{n}", start, start + length, more=(("kind", kind),))
        for n, (kind, start, length) in enumerate(drawn)
    ]
    found = analysis.explain(made(tasks))
    moments = {
        kind: {t for k, start, length in drawn if k == kind for t in range(start, start + length)}
        for kind, _, _ in drawn
    }
    compute, comm, copy = (moments.get(kind, set()) for kind in ("task", "comm", "copy"))
    assert (0 if found.communication is None else found.communication.exposed_ns) == ns(len(comm - compute))
    assert (0 if found.copies is None else found.copies.exposed_ns) == ns(len(copy - compute - comm))
    assert found.path.by_part().get("run", 0) == ns(len(compute | comm | copy))
