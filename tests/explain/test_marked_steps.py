"""The window honours the steps that the host marked; edges, graphs and unread devices are told for what they are."""

from pathlib import Path

import pytest
from builders import flow, write_events, x

import npuscope
from npuscope import explain as analysis
from npuscope.explain.doctor import symptoms_of
from npuscope.explain.waits import no_dependencies
from npuscope.trace import Trace

DECODE = "execute_context_0(0)_generation_8(8)"


def launched(id: int, at: int, runs: int, lasts: int, name: str = "gemm") -> list[dict[str, object]]:
    call = x("cudaLaunchKernel", at, 1, cat="cuda_runtime", args={"correlation": id})
    return [call, x(name, runs, lasts, pid=0, tid=7, cat="kernel"), *flow((1, 1, at), (0, 7, runs), "ac2g", id)]


def read(path: Path, *events: object) -> Trace:
    return npuscope.read(write_events(path / "t.json", list(events), deviceProperties=[]))


def test_host_time_before_the_first_kernel_is_part_of_the_step(tmp_path: Path) -> None:
    # GIVEN a step of 100 µs whose kernels run back to back in its last 40
    step = x(DECODE, 0, 100, cat="user_annotation")
    trace = read(tmp_path, step, *launched(1, 58, 60, 20), *launched(2, 59, 80, 20))
    # WHEN
    found = analysis.explain(trace)
    # THEN the device is busy 40 %, not 100, and waits for the host
    assert (found.work.wall, found.busy.running) == (100_000, 0.4)
    assert found.path.by_part() == {"launch": 59_000, "run": 40_000, "dependency+pickup": 1_000}
    assert found.diagnosis.bound == "launch"
    row = found.steps.table.select("step", "phase", "tokens", "marked_ns", "span_ns", "slices").row(0)
    assert row == (0, "decode", 8, 100_000, 40_000, 2)
    assert "1 decode" in found.steps.title()


def test_a_chosen_step_has_the_window_of_its_mark(tmp_path: Path) -> None:
    marks = [x(f"ProfilerStep#{n}", 100 * n, 100, cat="user_annotation") for n in (1, 2)]
    trace = read(tmp_path, *marks, *launched(1, 110, 150, 20), *launched(2, 210, 240, 20))
    assert analysis.explain(trace.select(step=2)).busy.running == 0.2
    assert analysis.explain(trace).busy.running == 0.2  # of 200 µs
    assert (
        analysis.explain(trace.select(kernel="gemm")).busy.window_ns == 110_000
    )  # without the marks, what was selected


def test_edges_that_are_no_dependencies_are_told(tmp_path: Path) -> None:
    links = flow((1, 1, 1), (1, 1, 3), "fwdbwd")
    events = [*launched(1, 1, 10, 5), *launched(2, 3, 90, 5), x("k", 50, 1, pid=0, tid=7, cat="kernel")]
    assert no_dependencies(read(tmp_path, *events)) == "no dependencies between tasks (its 2 edges are launches)"
    told = no_dependencies(read(tmp_path, *events, *links))
    assert told.endswith("(its 3 edges are 2 launches, 1 links from forward to backward)")
    assert no_dependencies(read(tmp_path, x("k", 50, 1, pid=0, tid=7, cat="kernel"))) == "no edges"


def recording(ran: int, recorded: int) -> list[dict[str, object]]:
    events: list[dict[str, object]] = [x("hipStreamBeginCapture", 100, 1, cat="cuda_runtime")]
    for n in range(ran):
        events += launched(n, n, 20 + n, 1)
    for n in range(recorded):
        events.append(x("hipModuleLaunchKernel", 110 + n, 1, cat="cuda_runtime", args={"correlation": 1000 + n}))
    return [*events, x("hipStreamEndCapture", 300, 1, cat="cuda_runtime")]


def test_a_capture_of_recording_a_graph_is_named_for_what_it_is(tmp_path: Path) -> None:
    trace = read(tmp_path, *recording(ran=3, recorded=40))
    verdict = analysis.explain(trace).diagnosis.verdict
    assert verdict.kind == "unknown"
    assert "40 launches were recorded into a graph and not run, 3 device tasks ran" in str(verdict)
    (told,) = [finding for finding in symptoms_of(trace).symptoms if finding.id == "graph-capture"]
    assert (told.severity, told.count) == ("warning", 40)
    # where more ran than was recorded, that is worth a note
    partly = read(tmp_path, *recording(ran=20, recorded=5))
    (told,) = [finding for finding in symptoms_of(partly).symptoms if finding.id == "graph-capture"]
    assert (told.severity, told.count) == ("note", 5)
    assert "graph" not in str(analysis.explain(partly).diagnosis.verdict)


@pytest.mark.parametrize(
    ("events", "count"),
    [
        ([x("k", n, 1, pid=0, tid=7, cat="GPU Kernels") for n in range(3)], 3),
        (
            [
                {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "stream 7"}},
                x("k", 0, 1, pid=0, tid=7),
            ],
            1,
        ),
        ([x("cudaLaunchKernel", n, 1, cat="cuda_runtime") for n in range(2)], 2),
        ([x("work", 0, 1, cat="thread")], 0),
    ],
)
def test_a_device_that_was_not_read_is_not_sound(tmp_path: Path, events: list[object], count: int) -> None:
    diagnosis = symptoms_of(npuscope.read(write_events(tmp_path / "t.json", events)))
    told = [finding.count for finding in diagnosis.symptoms if finding.id == "device-unread"]
    assert told == ([count] if count else [])
    assert ({finding.id for finding in diagnosis.symptoms} <= {"unit-unknown"}) == (not count)


def test_long_names_are_cut_in_the_middle_and_mangled_ones_read(tmp_path: Path) -> None:
    start = "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x512_MI16x16x1_SN_LDSB0_"
    names = [f"{start}{'x' * 40}_WG{n}" for n in range(2)] + ["_ZN5aiter11norm_kernelIfLi64EEEvPT_"]
    found = analysis.explain(
        read(tmp_path, *(e for n, name in enumerate(names) for e in launched(n, n, 10 * n + 9, 5, name)))
    )
    lines = found.busy.tables()["kernels"].lines(legend=False)
    assert len({line.split()[0] for line in lines}) == 4  # heading and three kernels
    assert "…" in lines[1]
    assert any(line.split()[0].endswith("WG1") for line in lines)
    assert "aiter::norm_kernel<float, 64>" in "\n".join(lines)
