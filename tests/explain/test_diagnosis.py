"""What a run suffers from: one story per cause, and the captures that were once judged wrongly."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from made import US, Task, made

import npuscope
from docs.reference_pages import columns_page
from npuscope import explain as analysis
from npuscope.explain import diagnosis as folder
from npuscope.explain.diagnosis import CAUSES, Cause, Diagnosis, Gain
from npuscope.explain.diagnosis.cause import FINDERS, ranked
from npuscope.trace import Trace

COMM = (("kind", "comm"),)
COPY = (("kind", "copy"),)


def diagnosis(trace: Trace) -> Diagnosis:
    return analysis.explain(trace).diagnosis


def cause(found: Diagnosis, kind: str) -> Cause:
    return next(cause for cause in found.causes if cause.kind == kind)


def one_after_another(kernel: str, lane: str, start: float, run: float, gap: float, count: int) -> list[Task]:
    begins = [start + n * (run + gap) for n in range(count)]
    return [Task(1000 * n, kernel, lane, begin, begin + run) for n, begin in enumerate(begins)]


def step(number: int, kernel: str, start: float, end: float, *more: tuple[str, object], lane: str = "stream_1") -> Task:
    return Task(round(1000 * start), kernel, lane, start, end, more=(("step", number), *more))


# gaps between tasks


def buffered(gap: float) -> Trace:
    """Twenty tasks of 30 µs on each of four cube cores, with a gap after each; no edges, no dispatch times."""
    return made(task for core in range(4) for task in one_after_another("sv_matmul", f"AIC_{core}", 0, 30, gap, 20))


def test_gaps_between_tasks_are_seen_without_edges_and_dispatch_times() -> None:
    slow, fast = diagnosis(buffered(21.66)), diagnosis(buffered(11.27))
    assert slow.bound == "gap"
    assert str(slow.verdict).startswith("The cube cores stand still 21.7 µs between one task and the next (median)")
    # what the shorter gaps brought lies within what the longer ones were said to be worth
    gain = slow.verdict.gain
    assert gain is not None
    assert gain.low_ns <= slow.wall_ns - fast.wall_ns <= gain.high_ns
    assert "two buffers per core" in slow.verdict.remedy


@pytest.mark.parametrize("program", ["qwen3", "paged_attention"])
def test_double_buffering_brought_what_single_buffering_was_said_to_lose(shared: Path, program: str) -> None:
    slow, fast = (
        diagnosis(npuscope.read(shared / "pypto" / f"esl_proxy_{program}_{how}_buffer.json"))
        for how in ("single", "double")
    )
    lost = cause(slow, "gap").gain
    assert lost is not None
    assert lost.low_ns <= slow.wall_ns - fast.wall_ns <= lost.high_ns


def test_the_median_gap_of_the_qwen3_pair_is_named(shared: Path) -> None:
    told = [
        str(diagnosis(npuscope.read(shared / "pypto" / f"esl_proxy_qwen3_{how}_buffer.json")).verdict)
        for how in ("single", "double")
    ]
    assert told[0].startswith("The cube cores stand still 21.7 µs between one task and the next (median), 42.9%")
    assert told[1].startswith("The cube cores stand still 11.3 µs between one task and the next (median), 35.8%")


# what lies outside of the run


def late_pass(**stamps: Any) -> Trace:
    """A stray kernel, 463 ms of nothing, then a pass of 10 ms that is 93 % busy."""
    stray = Task(1, "arange", "stream_2", 0, 4)
    run = [Task(2 + n, "gemm", "stream_1", 463_000 + 100 * n, 463_093 + 100 * n, **stamps) for n in range(100)]
    return made([stray, *run])


def test_a_stray_kernel_does_not_hide_a_busy_pass() -> None:
    found = diagnosis(late_pass())
    assert found.bound == "core"
    assert str(found.verdict).startswith("In the 9.99 ms of the run itself: the device computes 93.1% of the time")
    outside = cause(found, "outside")
    assert outside.sentence == "The run begins only after 463 ms (97.9% of the window), in which one stray kernel runs."
    assert [span[:2] for span in outside.where] == [(0, 463_000 * US)]


def test_a_kernel_that_waited_for_what_was_not_recorded() -> None:
    # GIVEN the same, where the first kernel of the pass was launched right at the beginning
    found = diagnosis(late_pass(dispatch=10))
    assert found.bound == "core"
    waited = cause(found, "unrecorded")
    assert waited.sentence.startswith("`gemm` was launched 463 ms before it began, and nothing that was recorded ran")
    assert waited.confidence == "likely"


def test_a_host_that_launched_nothing_is_no_stray_kernel() -> None:
    found = diagnosis(late_pass(dispatch=462_990))
    assert found.bound == "host"
    assert "in 1 long pause in which the host launches nothing" in str(found.verdict)


def test_the_sglang_pass_is_seen_behind_463_ms_of_waiting(shared: Path) -> None:
    found = diagnosis(npuscope.read(shared / "gpu" / "tracelens_sglang_qwen3_8b_decode.json.gz"))
    assert str(found.verdict).startswith("In the 10.5 ms of the run itself: the device computes 93.4% of the time")
    assert [cause.kind for cause in found.causes[1:]] == ["unrecorded"]
    assert "was launched 463 ms before it began" in found.causes[1].sentence


# communication


def test_a_collective_that_takes_far_longer_than_its_like_waited_for_another_rank() -> None:
    tasks = [Task(n, "gemm", "stream_1", 100 * n, 100 * n + 60) for n in range(10)]
    lengths = [20] * 9 + [2000]
    tasks += [
        Task(50 + n, "allReduce", "link_1", 100 * n + 60, 100 * n + 60 + d, more=COMM) for n, d in enumerate(lengths)
    ]
    found = diagnosis(made(tasks))
    assert found.bound == "communication"
    assert "one `allReduce` takes 2 ms where 20 µs is usual, as if it waited for another rank" in str(found.verdict)
    assert "the folder with all ranks" in found.verdict.remedy


def test_collectives_of_many_sizes_are_not_called_late() -> None:
    tasks = [Task(n, "allReduce", "link_1", 100 * n, 100 * n + (90 if n % 3 == 0 else 5), more=COMM) for n in range(30)]
    assert "waited" not in str(diagnosis(made(tasks)).verdict)


def test_gathering_is_named_where_nothing_else_runs(shared: Path) -> None:
    trace = npuscope.read(shared / "ascend" / "npu_mfu_sample" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")
    found = diagnosis(trace)
    assert found.bound == "communication"
    assert "nearly all of it in `hcom_allGather_`" in str(found.verdict)
    assert "it is 95.9% of the time in which anything runs" in found.verdict.evidence


# steps


def decode(odd: float) -> Trace:
    """Five steps of 1 ms: 500 µs of kernels, 250 of an AllReduce, the rest pauses; one AllReduce is longer."""
    tasks = []
    begin = 0.0
    for number in range(5):
        for n in range(10):
            tasks.append(step(number, "matmul", begin + 75 * n, begin + 75 * n + 50))
        reduce = 250 + (odd if number == 2 else 0)
        tasks.append(step(number, "allReduce", begin + 750, begin + 750 + reduce, *COMM, lane="link_1"))
        begin += 750 + reduce
    return made(tasks)


def test_an_odd_step_is_told_with_what_made_it_long_and_no_time_counts_twice() -> None:
    found = diagnosis(decode(3000))
    assert found.bound == "step"
    assert str(found.verdict) == (
        "Step 2 takes 4 ms, 4 times the usual 1 ms: `allReduce` takes 3 ms more in it, the longest 3.25 ms, so this "
        "rank waited for another."
    )
    assert found.verdict.gain == Gain(3000 * US, 0, 3150 * US)
    assert sum(cause.share for cause in found.causes) == pytest.approx(1.0, abs=0.01)
    assert [cause.kind for cause in diagnosis(decode(0)).causes] == ["communication", "core", "launch"]


def test_what_is_wrong_with_the_longcat_capture_is_told(shared: Path) -> None:
    found = diagnosis(npuscope.read(shared / "ascend" / "longcat_910c" / "kernel_details.csv"))
    assert str(found.verdict) == (
        "Step 3 takes 25.6 ms, 2.4 times the usual 10.7 ms: `HcomAllReduce` takes 13.7 ms more in it, the longest "
        "14.1 ms, so this rank waited for another."
    )
    idle = cause(found, "launch").share + cause(found, "gap").share
    assert idle == pytest.approx(0.236, abs=0.001)  # 16.884 of 71.502 ms


# idle streams, hosts


def test_an_idle_stream_waits_for_nothing(shared: Path) -> None:
    # GIVEN two streams, one of which runs all the time and the other at the beginning and at the end
    tasks = [Task(n, "gemm", "stream_1", 10 * n, 10 * n + 10) for n in range(100)]
    trace = made([*tasks, Task(200, "ArgMaxV2", "stream_2", 0, 5), Task(201, "ArgMaxV2", "stream_2", 990, 1000)])
    found = analysis.explain(trace)
    assert found.bubbles.sentences() == []
    assert [cause.kind for cause in found.diagnosis.causes] == ["core"]
    longcat = analysis.explain(npuscope.read(shared / "ascend" / "longcat_910c" / "kernel_details.csv"))
    waited = longcat.bubbles.blockers(100).filter(kernel="ArgMaxV2")["idle_ns"].sum()
    assert waited < 1000 * US  # its stream idles for 55,948 µs, the device does not


def test_a_host_that_launches_slowly_and_one_that_stands_still() -> None:
    # GIVEN kernels of 20 µs of which each is launched 100 µs after the one before, and a pause of 5 ms in `item`
    def kernel(n: int, start: float) -> list[Task]:
        return [Task(n, "add", "stream_1", start, start + 20, dispatch=start - 1)]

    tasks = [task for n in range(50) for task in kernel(n, 100 * n + 1)]
    tasks += [task for n in range(50) for task in kernel(60 + n, 9900 + 100 * n + 1)]
    host = made([*tasks, Task(500, "aten::item", "host_0", 4930, 9890)])
    found = diagnosis(host)
    assert [cause.kind for cause in found.causes] == ["launch", "host", "core", "gap"][: len(found.causes)]
    assert "The device waits for the host's next launch for 7.74 ms" in cause(found, "launch").sentence
    stall = cause(found, "host")
    assert "in 1 long pause, while the host is in `aten::item`" in stall.sentence
    assert stall.evidence[-1] == "in 99.6% of the longest pauses' time the host is in `aten::item`"


def test_nothing_to_gain_is_an_answer() -> None:
    found = diagnosis(made(one_after_another("gemm", "stream_1", 0, 100, 0.1, 50)))
    assert [cause.kind for cause in found.causes] == ["core"]
    assert found.verdict.remedy.startswith("Nothing to gain here but from kernels themselves.")


def test_copies_that_nothing_hides() -> None:
    tasks = [Task(1, "gemm", "stream_1", 0, 100), Task(2, "memcpy", "stream_2", 100, 400, more=COPY)]
    found = diagnosis(made(tasks))
    assert (found.bound, found.verdict.share) == ("copy", 0.75)
    # a copy can hide behind compute as far as there is any
    assert found.verdict.gain == Gain(200 * US, 100 * US, 300 * US)


# cores


def test_cores_without_work_are_counted() -> None:
    lanes = tuple(f"AIC_{n}" for n in range(8))
    found = diagnosis(made([Task(n, "gemm", f"AIC_{n}", 0, 100) for n in range(2)], lanes=lanes))
    assert found.bound == "width"
    assert str(found.verdict) == "6 of 8 cube cores never run anything: there are too few tasks at a time."


def test_full_cores_at_the_end_are_no_tail() -> None:
    # GIVEN two cores whose last tasks end together, and the same with one of them alone
    both = [Task(n, "gemm", f"AIC_{n % 2}", 50 * (n // 2), 50 * (n // 2) + 50, 0, 500) for n in range(4)]
    assert [cause.kind for cause in diagnosis(made(both, [(0, 2)])).causes] == ["core"]
    assert "tail" in [cause.kind for cause in diagnosis(made(both[:3], [(0, 2)])).causes]


# a new one


def test_a_file_in_the_folder_is_a_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe of docs/howto/extend.md."""
    page = Path(__file__).resolve().parents[2] / "docs" / "howto" / "extend.md"
    (text,) = re.findall(r'```python\n("""Tasks so short.*?)```', page.read_text(), re.DOTALL)
    (tmp_path / "tiny_tasks.py").write_text(text)
    short = made(one_after_another("tiny", "AIC_0", 0, 1, 0.5, 40))
    assert "tiny" not in {one.kind for one in diagnosis(short).causes}
    # WHEN the file lies beside the others
    monkeypatch.setattr(folder, "__path__", [*folder.__path__, str(tmp_path)])
    before = list(FINDERS)
    try:
        folder.load_causes()
        # THEN it is recognised where it holds, and documented
        found = cause(diagnosis(short), "tiny")
        assert str(found).startswith("40 tasks of less than 2 µs run for 40 µs")
        assert found.gain == Gain(20 * US, 0, 40 * US)
        assert found.evidence == ("half of all tasks are that short (40 tasks in all)",)
        assert "tiny" not in {one.kind for one in diagnosis(buffered(10)).causes}
        assert "| tiny | tasks are too short to be worth handing out |" in columns_page()
    finally:
        FINDERS[:] = before
        CAUSES.pop("tiny", None)
        sys.modules.pop("npuscope.explain.diagnosis.tiny_tasks", None)


def test_what_takes_next_to_nothing_is_no_verdict() -> None:
    # GIVEN a chain of 0.3% that could be halved, and a scheduler that takes the rest, of which nobody knows the remedy
    chain = Cause("dependency", "a chain", 0.003, gain=Gain.around(850, 0, 1700))
    waits = Cause("dispatch", "the scheduler", 0.997, gain=Gain.around(0, 0, 571_000))
    assert [one.kind for one in ranked([chain, waits], 574_000)] == ["dispatch"]
    assert [one.kind for one in ranked([chain], 574_000)] == ["dependency"]
