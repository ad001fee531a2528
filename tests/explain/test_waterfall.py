"""The gap waterfall: what differs between two runs, on the paths that decide their ends."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import polars as pl
import pytest
from conftest import captures
from made import DEPENDS, DOZEN, US, Task, dozen, made

import npuscope
from npuscope import explain as analysis
from npuscope.explain.comparison import compare_explained
from npuscope.explain.ranks import explain_ranks


def bars(a: npuscope.Trace, b: npuscope.Trace) -> dict[str, int]:
    found = analysis.compare(a, b).waterfall
    assert int(found.bars["ns"].sum()) == found.gap_ns
    return dict(found.bars.iter_rows())


def later(task: Task, by: float, **more: float) -> Task:
    stamps = {"start": task.start, "end": task.end, "dispatch": task.dispatch, "finish": task.finish}
    return Task(task.task, task.kernel, task.lane, **{k: v + by for k, v in {**stamps, **more}.items()})  # type: ignore[operator, arg-type]


def test_a_slower_kernel_on_the_path_is_speed() -> None:
    # GIVEN the drawn run, and one in which down takes 20 µs in place of 14, and residual waits for it
    slower = [*DOZEN[:10], later(DOZEN[10], 0, end=101, finish=102), later(DOZEN[11], 6)]
    # WHEN / THEN the 6 µs are the kernel's, and nothing else moved
    found = bars(dozen(), made(slower, DEPENDS))
    assert found["slower or faster kernels"] == 6 * US
    assert sum(abs(ns) for ns in found.values()) == 6 * US


def test_a_slower_scheduler_is_its_reason() -> None:
    # GIVEN residual handed out 4 µs later
    late = [*DOZEN[:11], later(DOZEN[11], 4)]
    found = bars(dozen(), made(late, DEPENDS))
    assert found["wait: dispatch"] == 4 * US
    assert sum(abs(ns) for ns in found.values()) == 4 * US


def test_a_kernel_that_only_one_side_has_is_work() -> None:
    # GIVEN a run with one task more at the end, 5 µs of it and 3 µs of waiting for it
    more = [*DOZEN, Task(13, "quant", "AIV_1", 103, 108, 102, 109)]
    found = bars(dozen(), made(more, (*DEPENDS, (12, 13))))
    assert found["kernels that only one side has"] == 5 * US
    assert {part: ns // US for part, ns in found.items() if part.startswith("wait")} == {
        "wait: FIN": 1, "wait: dispatch": 1, "wait: pickup": 1,
    }  # fmt: skip


def test_work_behind_other_work_leaves_the_path() -> None:
    # GIVEN two kernels one after the other, and the same two beside each other
    serial = made([Task(1, "a", "AIC_0", 0, 10), Task(2, "b", "AIC_1", 10, 20)])
    beside = made([Task(1, "a", "AIC_0", 0, 10), Task(2, "b", "AIC_1", 0, 10)])
    # WHEN nobody says who waits for whom THEN each core runs as long, and idles 10 µs less before or after that
    assert bars(serial, beside) == {
        "more or fewer tasks": 0,
        "slower or faster kernels": 0,
        "work moved onto or off the path": 0,
        "wait: edge": -10 * US,
    }
    # AND where b waited for a and does not any more, b moved off the path
    depends = [Task(1, "a", "AIC_0", 0, 10, 0, 10), Task(2, "b", "AIC_1", 10, 20, 10, 20)]
    free = [depends[0], Task(2, "b", "AIC_1", 0, 9, 0, 9), Task(3, "c", "AIC_1", 9, 10, 9, 10)]
    found = bars(made(depends, [(1, 2)]), made(free, [(2, 3)]))
    assert found["work moved onto or off the path"] < 0
    assert sum(found.values()) == -10 * US


def test_blocks_of_a_second_wave_are_told_from_tasks() -> None:
    # GIVEN eight tasks on four cores in two waves, and the same work in one task of four blocks, each as long
    waves = [
        Task(n, "gemm", f"AIC_{n % 4}", 10 * (n // 4), 10 * (n // 4) + 10, 0, 10 * (n // 4) + 10) for n in range(8)
    ]
    one = [Task(1, "gemm", f"AIC_{n}", 0, 10, 0, 10) for n in range(4)]
    found = analysis.compare(made(waves, whole_graph=True), made(one, whole_graph=True))
    # THEN one block less stands on the path, which the headline names with its kernel, whatever was counted elsewhere
    assert dict(found.waterfall.bars.iter_rows())["more or fewer blocks one after another"] == -10 * US
    assert found.title().endswith("-10 µs fewer blocks one after another (`gemm`, 2 → 1)")


def test_that_work_moved_is_the_last_thing_to_say() -> None:
    # GIVEN a run in which most of the difference is work that moved, and a quarter a faster kernel
    made_up = analysis.compare(dozen(), dozen()).waterfall
    rows = [("slower or faster kernels", -25), ("work moved onto or off the path", -75)]
    names = pl.DataFrame(rows, schema=made_up.bars.schema, orient="row")
    assert replace(made_up, bars=names, wall=(200, 100)).most(slower=False) == "-25 ns faster kernels"
    # AND THEN with less than a fifth by anything else it is said
    names = pl.DataFrame([(rows[0][0], -10), (rows[1][0], -90)], schema=made_up.bars.schema, orient="row")
    assert "work moved off the path" in replace(made_up, bars=names, wall=(200, 100)).most(slower=False)


def test_larger_tensors_are_told_from_slower_kernels() -> None:
    # GIVEN a kernel whose tensors doubled and whose time tripled
    def run(shape: str, end: float) -> npuscope.Trace:
        tensors = (("Input Shapes", shape), ("Input Data Types", "FLOAT16"))
        return made([Task(1, "MatMul", "stream_0", 0, end, more=tensors)])

    found = analysis.compare(run('"16,128"', 10), run('"32,128"', 30))
    # THEN the 20 µs more are shared out as ln 2 to ln 1.5, whose product is the whole factor of three
    assert dict(found.waterfall.bars.iter_rows()) == {
        "more or fewer tasks": 0,
        "larger or smaller tasks": 12_619,
        "slower or faster kernels": 7_381,
        "work moved onto or off the path": 0,
    }
    assert "shapes differ in 1 matched kernels: MatMul" in found.not_like_for_like


def test_a_second_dispatch_buffer_hides_work(shared: Path) -> None:
    # GIVEN the real pair: Qwen3 decode with one and with two dispatch buffers, the same 3096 tasks
    pair = [npuscope.read(shared / "pypto" / f"esl_proxy_qwen3_{kind}_buffer.json") for kind in ("single", "double")]
    found = bars(*pair)
    # THEN kernels take as long, and the gain is that of the gaps between tasks, which the diagnosis of the first names
    assert found["more or fewer tasks"] == 0
    assert abs(found["slower or faster kernels"]) < 0.02 * 483_340
    assert found["gaps between one task and the next"] < -0.9 * 483_340
    assert "gaps between one task and the next" in analysis.compare(pair[0], pair[1]).title()


@pytest.mark.parametrize("whose", ["ours", pytest.param("real", marks=pytest.mark.full)])
def test_every_two_captures_add_up(request: pytest.FixtureRequest, whose: str) -> None:
    paths = [*request.getfixturevalue("small").values()] if whose == "ours" else captures()
    if not paths:
        request.getfixturevalue("shared")  # skips
    explained = [one for path in paths for one in explain_ranks(npuscope.read(path)).explained]
    assert len(explained) > 15
    for number, (a, b) in enumerate(combinations(explained, 2)):
        a, b = (a, b) if number % 2 else (b, a)
        found = compare_explained(a, b).waterfall
        assert int(found.bars["ns"].sum()) == b.work.wall - a.work.wall
