"""Two captures of streams: the headline says what can be compared, and idle time has a name."""

from pathlib import Path

import pytest
from builders import write_events, x

import npuscope
from npuscope import explain as analysis
from npuscope.explain.comparison import Comparison
from npuscope.explain.diagnosis.on_streams import GAPS, LAUNCHES, STALLS
from npuscope.explain.waterfall import OTHER, TASKS
from npuscope.trace import Trace

Kernel = tuple[str, int, int]  # name, start and duration in microseconds


def capture(
    path: Path, kernels: list[Kernel], *more: dict[str, object], launches: bool = True, **header: object
) -> Trace:
    """Kernels on a stream, each launched 2 µs before it begins unless no launch is wanted."""
    events: list[dict[str, object]] = [*more]
    for id, (name, start, dur) in enumerate(kernels):
        events.append(x(name, start, dur, pid=0, tid=7, cat="kernel", args={"correlation": id}))
        if launches:
            events.append(x("cudaLaunchKernel", start - 3, 1, cat="cuda_runtime", args={"correlation": id}))
    return npuscope.read(write_events(path, events, **{"deviceProperties": [], **header}))


def bars(found: Comparison) -> dict[str, int]:
    """The parts of the gap that are not zero, in microseconds; all of them are the gap."""
    parts = {part: ns // 1000 for part, ns in found.waterfall.bars.iter_rows() if ns}
    assert sum(found.waterfall.bars["ns"]) == found.waterfall.gap_ns
    return parts


def loaded(path: Path, pause: int, *, launches: bool = True) -> Trace:
    """Three kernels of 100 µs, the host in a data loader in the pauses between them."""
    starts = [n * (100 + pause) for n in range(3)]
    loads = [x("DataLoader.__next__", 101 + at, pause - 6, cat="cpu_op") for at in starts[:2] if pause > 10]
    return capture(path, [("gemm", at, 100) for at in starts], *loads, launches=launches)


def test_a_pause_that_vanishes_has_the_name_of_its_call(tmp_path: Path) -> None:
    # GIVEN pauses of 5 ms in a data loader, and none of them
    slow, fast = loaded(tmp_path / "a.json", 5000), loaded(tmp_path / "b.json", 5)
    found = analysis.compare(slow, fast)
    # THEN 2 × 5 ms but the 2 µs from each launch to its kernel are its; 2 × 3 µs of waiting for launches are left
    name = f"{STALLS}, the host in `DataLoader.__next__`"
    assert bars(found) == {name: -2 * 4998, LAUNCHES: 2 * 3}
    assert name in found.headline(("A", "B"))


def test_idle_time_is_attributed_where_one_side_has_no_launches(tmp_path: Path) -> None:
    found = analysis.compare(loaded(tmp_path / "a.json", 5000), loaded(tmp_path / "b.json", 5, launches=False))
    parts = bars(found)
    assert parts[GAPS] == 10
    assert any("only one capture says when work was launched" in line for line in found.not_like_for_like)


def test_gaps_between_kernels_are_a_cause_of_their_own(tmp_path: Path) -> None:
    sides = [
        capture(tmp_path / f"{gap}.json", [("k", n * (20 + gap), 20) for n in range(50)], launches=False)
        for gap in (1, 5)
    ]
    assert bars(analysis.compare(sides[0], sides[1])) == {GAPS: 49 * 4}


def test_another_kernel_is_not_more_tasks(tmp_path: Path) -> None:
    # GIVEN one kernel of 100 µs replaced by another of 60
    sides = [capture(tmp_path / f"{n}.json", [("k", 0, 50), (name, 50, dur)], launches=False)
             for n, (name, dur) in enumerate([("old_attention", 100), ("flash", 60)])]  # fmt: skip
    parts = bars(analysis.compare(sides[0], sides[1]))
    assert parts == {OTHER: -40}
    assert TASKS not in parts


def steps(path: Path, count: int, each: int, device: str = "") -> Trace:
    kernels = [("gemm", n * 2 * each, each) for n in range(count)]
    marks = [x(f"ProfilerStep#{n}", n * 2 * each - 4, each + 8, cat="user_annotation") for n in range(count)]
    return capture(path, kernels, *marks, deviceProperties=[{"name": device}] if device else [])


def test_windows_with_different_numbers_of_steps_are_compared_by_step(tmp_path: Path) -> None:
    # GIVEN 4 steps of 100 µs against 2 of 150: the whole is shorter, a step is longer
    found = analysis.compare(steps(tmp_path / "a.json", 4, 100), steps(tmp_path / "b.json", 2, 150))
    assert found.headline(("A", "B")).startswith("B is 1.50x slower than A per step (100 µs → 150 µs")


def test_devices_that_differ_are_in_the_headline(tmp_path: Path) -> None:
    sides = [steps(tmp_path / f"{name}.json", 2, each, name) for name, each in (("A100", 100), ("H100", 50))]
    assert "different devices (A100, H100)" in analysis.compare(sides[0], sides[1]).headline(("A", "B"))


@pytest.mark.parametrize(("count", "fixed"), [(30, True), (20, False)])
def test_a_fixed_window_is_no_time_to_compare(tmp_path: Path, count: int, fixed: bool) -> None:
    # GIVEN 20 kernels in a window of 10 ms, and 30 or 20 in as long a window
    sides = [
        capture(
            tmp_path / f"{n}.json", [(f"k{chr(97 + i)}", i * 10_000 // (n - 1), 1) for i in range(n)], launches=False
        )
        for n in (20, count)
    ]
    assert analysis.compare(sides[0], sides[1]).headline(("A", "B")).startswith("The windows of") == fixed
