"""Launches are found in whatever way a producer writes them down, and a pause is blamed on what the host does in it."""

from pathlib import Path

import pytest
from builders import flow, write_events, write_nsys, x

import npuscope
from npuscope import explain as analysis
from npuscope.explain.explanation import Explanation
from npuscope.trace import Trace

# a kernel at 0–10, launched before the capture; the next is launched by a call from 20 to 24 and runs at 30–40
LAUNCH_ENDS, NEXT_STARTS, FIRST_ENDS = 24_000, 30_000, 10_000
WAITS = {"launch": LAUNCH_ENDS - FIRST_ENDS, "dependency+pickup": NEXT_STARTS - LAUNCH_ENDS}


def kernels(category: str, stream: str | int, **args: object) -> list[dict[str, object]]:
    first = x("gemm", 0, 10, pid=0, tid=stream, cat=category, args={"stream": 7})
    return [first, x("gemm", 30, 10, pid=0, tid=stream, cat=category, args={"stream": 7, **args})]


def with_thread_ids_of_two_types(path: Path) -> Trace:
    """PyTorch of 2021: a slice's thread is text, that of the flow which begins in it a number."""
    events = [
        *kernels("Kernel", "stream 7"),
        x("cudaLaunchKernel", 20, 4, pid=90, tid="1890023232", cat="Runtime"),
        *flow((90, 1890023232, 20), (0, "stream 7", 30), "launch", 5, cat="async"),
    ]
    return npuscope.read(write_events(path / "old.json", events, schemaVersion=1))


def without_flows(path: Path) -> Trace:
    call = x("cudaLaunchKernel", 20, 4, cat="cuda_runtime", args={"correlation": 5})
    return npuscope.read(write_events(path / "flat.json", [*kernels("kernel", 7, correlation=5), call]))


def from_nsys(path: Path) -> Trace:
    kernel = {"deviceId": 0, "streamId": 7, "globalPid": 9 << 24, "demangledName": 1}
    call = {"start": 20_000, "end": 24_000, "globalTid": (9 << 24) + 3, "correlationId": 5, "nameId": 2}
    session = {
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            {"start": 0, "end": 10_000, "correlationId": 4, **kernel},
            {"start": 30_000, "end": 40_000, "correlationId": 5, **kernel},
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [call],
    }
    return npuscope.read(write_nsys(path / "run.sqlite", {1: "gemm", 2: "cudaLaunchKernel"}, **session))


@pytest.mark.parametrize("capture", [with_thread_ids_of_two_types, without_flows, from_nsys])
def test_a_launch_is_found_however_it_is_written(tmp_path: Path, capture: object) -> None:
    found = analysis.explain(capture(tmp_path))  # type: ignore[operator]
    assert found.bubbles.by_reason == WAITS
    assert "1 of 2 slices have a launch" in found.notes[0]
    said = " ".join(line for cause in found.diagnosis.causes for line in (cause.sentence, *cause.evidence))
    assert "no launches" not in said


def test_a_capture_of_kernels_alone_has_no_launches(tmp_path: Path) -> None:
    events = [x("gemm", 5000 * n, 10, pid=0, tid=7, cat="kernel") for n in range(4)]
    host, *_ = analysis.explain(
        npuscope.read(write_events(tmp_path / "t.json", events, deviceProperties=[]))
    ).diagnosis.causes
    assert host.kind == "host"
    assert any("no launches" in line for line in host.evidence)


def stalled(path: Path, call: str, starts: int, ends: int, *more: dict[str, object]) -> Explanation:
    """Kernels of 10 µs at 0 and at 5000; the second is launched by a call from `starts` to `ends`."""
    launch = x(call, starts, ends - starts, cat="cuda_runtime", args={"correlation": 5})
    events = [x("gemm", at, 10, pid=0, tid=7, cat="kernel", args={"correlation": at // 1000}) for at in (0, 5000)]
    return analysis.explain(npuscope.read(write_events(path / "t.json", [*events, launch, *more])))


def test_a_pause_inside_a_long_launch_is_the_calls(tmp_path: Path) -> None:
    # GIVEN a launch that takes nearly the whole pause, as the first of a kernel does that has to be loaded
    host = stalled(tmp_path, "cudaLaunchKernel", 100, 4990).diagnosis.verdict
    # THEN it is not that nothing is launched
    assert host.kind == "host"
    assert "while the host is in `cudaLaunchKernel`" in host.sentence


@pytest.mark.parametrize("category", ["cpu_op", "user_annotation"])  # torch of 2021, and later
@pytest.mark.parametrize(("length", "words"), [(4900, "pause, while"), (3000, "pause, most of it while")])
def test_a_pause_in_another_call_has_its_name(tmp_path: Path, category: str, length: int, words: str) -> None:
    loader = x("enumerate(DataLoader)#__next__", 20, length, cat=category)
    step = x("ProfilerStep#3", 0, 5010, cat="user_annotation")
    host = stalled(tmp_path, "cudaMemcpyAsync", 4980, 4985, loader, step).diagnosis.verdict
    assert f"{words} the host is in `enumerate(DataLoader)#__next__`" in host.sentence
    assert any(line.startswith(f"in {100 * length / 4975:.1f}%") for line in host.evidence)  # from 10 to the launch


def test_after_the_last_of_known_launches_nothing_is_launched(tmp_path: Path) -> None:
    # GIVEN a step of 9 ms whose two kernels end after 5.01 ms, and whose launches are both recorded
    step = x("ProfilerStep#3", 0, 9000, cat="user_annotation")
    first = x("cudaLaunchKernel", -5, 2, cat="cuda_runtime", args={"correlation": 0})
    said = stalled(tmp_path, "cudaLaunchKernel", 2, 4, first, step).diagnosis.causes
    host = next(cause for cause in said if cause.kind == "host")
    assert "in 1 long pause in which the host launches nothing" in host.sentence
    assert host.evidence == ("the longest takes 3.99 ms, after the last kernel",)
    assert "cut the window" in host.remedy


def test_a_pause_without_a_call_is_one_in_which_nothing_is_launched(tmp_path: Path) -> None:
    host = stalled(tmp_path, "cudaLaunchKernel", 4980, 4985).diagnosis.verdict
    assert "in which the host launches nothing" in host.sentence
    assert host.evidence[0].endswith("before `gemm`")


@pytest.mark.parametrize(("starts", "where"), [(2000, "before the first"), (1000, "after the last")])
def test_an_idle_end_of_the_window_is_named_by_its_side(tmp_path: Path, starts: int, where: str) -> None:
    # GIVEN a step of 10 ms with a kernel of 7 ms, of which no launch is known: the longer pause takes 2 ms
    step = x("ProfilerStep#1", 0, 10_000, cat="user_annotation")
    kernel = x("gemm", starts, 7000, pid=0, tid=7, cat="kernel")
    trace = npuscope.read(write_events(tmp_path / "t.json", [step, kernel], deviceProperties=[]))
    host = next(cause for cause in analysis.explain(trace).diagnosis.causes if cause.kind == "host")
    assert host.evidence[0] == f"the longest takes 2 ms, {where} kernel"


def test_work_of_streams_is_launched_not_handed_out(tmp_path: Path) -> None:
    found = analysis.explain(without_flows(tmp_path))
    reasons = found.scheduling.ledger["part"].to_list()
    assert "launch" in reasons
    assert not {"dispatch", "pickup"} & set(reasons)
