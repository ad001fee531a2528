"""A against B: kernels meet by name, by a given pair, by bare name; the rest is new or gone."""

from pathlib import Path

import pytest
from made import US, Task, made

import npuscope
from npuscope import NpuscopeError
from npuscope import explain as analysis
from npuscope.explain.matching import bare, match_kernels


def test_the_second_seeds_table_is_one_call() -> None:
    # GIVEN attention of 548 µs in one run and 1263 µs in another, under other names, on four cores
    cce = made([Task(n, "paged_attention", f"AIC_{n}", 0, 548) for n in range(4)])
    pypto = made(
        [Task(n, "fa_fused", f"AIC_{n}", 0, 1263) for n in range(4)] + [Task(9, "out_proj", "AIC_0", 1263, 1300)]
    )
    # WHEN
    found = analysis.compare(cce, pypto, kernels="attention|fa_fused")
    # THEN
    assert found.totals["on_core_ns"] == (548 * US, 1263 * US)
    assert found.tables()["gaps"].frame.filter(metric="on_core_ns")["ratio"].item() == pytest.approx(2.3, abs=0.01)
    assert found.totals["core_ns"] == (4 * 548 * US, 4 * 1263 * US)


def test_kernels_meet_by_name_then_by_pair_then_by_bare_name() -> None:
    found = match_kernels(
        ["same", "QKV", "MatMulV2_12", "gone"], ["same", "qkv_fused", "matmul_v3_7", "new"], {"QKV": "qkv_fused"}
    )
    assert {(m.in_a, m.in_b, m.rule) for m in found} == {
        (("same",), ("same",), "name"),
        (("QKV",), ("qkv_fused",), "given"),
        (("MatMulV2_12",), ("matmul_v3_7",), "bare name"),
        (("gone",), (), "gone"),
        ((), ("new",), "new"),
    }


def test_every_kernel_is_in_exactly_one_match() -> None:
    a, b = ["k_1", "k_2", "x"], ["k_7", "K", "y", "x"]
    found = match_kernels(a, b)
    assert sorted(name for m in found for name in m.in_a) == sorted(a)
    assert sorted(name for m in found for name in m.in_b) == sorted(b)


def test_bare_names() -> None:
    assert bare("void at::native::reduce_kernel<512, 1>(int)") == bare("void at::native::reduce_kernel<128, 4>(long)")
    assert bare("123") == "123"


def test_counts_that_changed_and_kernels_that_came_and_went_are_said() -> None:
    a = made([Task(1, "x", "AIC_0", 0, 1), Task(2, "old", "AIC_0", 1, 2)])
    b = made([Task(1, "x", "AIC_0", 0, 1), Task(2, "x", "AIC_1", 0, 2), Task(3, "young", "AIC_1", 3, 4)])
    found = analysis.compare(a, b)
    assert found.not_like_for_like == (
        "AIC lanes: 1 against 2",
        "1 kernel only in A: old",
        "1 kernel only in B: young",
        "1 kernel runs more or less often: x 1 → 2",
    )
    rows = {row["kernel"]: row for row in found.kernels.to_dicts()}
    assert (rows["old"]["rule"], rows["old"]["gap_ns"], rows["old"]["ratio"]) == ("gone", -1 * US, 0.0)
    assert (rows["young"]["rule"], rows["young"]["ratio"]) == ("new", None)


def test_a_trace_with_edges_against_one_without_is_followed_alike() -> None:
    tasks = [Task(1, "a", "AIC_0", 0, 10, 0, 10), Task(2, "b", "AIC_1", 12, 20, 12, 20)]
    found = analysis.compare(made(tasks, [(1, 2)]), made(tasks))
    assert found.waterfall.kind == "unit"
    assert any("only one capture tells dependencies" in line for line in found.not_like_for_like)


def test_a_set_is_found_on_either_side_and_follows_pairs() -> None:
    # GIVEN QKV_proj of A, called qkv in B
    a, b = (
        made([Task(1, "QKV_proj", "AIC_0", 0, 20)]),
        made([Task(1, "qkv", "AIC_0", 0, 20), Task(2, "o", "AIC_0", 20, 32)]),
    )
    found = analysis.compare(a, b, kernels="QKV_proj", pairs={"QKV_proj": "qkv"})
    assert found.totals["core_ns"] == (20 * US, 20 * US)
    assert [o is not None and o.core_ns for o in found.overlaps] == [20 * US, 20 * US]
    # a side without any of them has no time, and a set that nobody has is refused
    assert analysis.compare(a, b, kernels="^o$").totals["core_ns"] == (0, 12 * US)
    with pytest.raises(NpuscopeError, match="no kernel matches 'attention'"):
        analysis.compare(a, b, kernels="attention")


def test_three_traces_are_a_trend() -> None:
    traces = {f"run{n}": made([Task(1, "a", "AIC_0", 0, 10 * n, 0, 10 * n)]) for n in (1, 2, 3)}
    table = analysis.trend(traces)
    assert table["trace"].to_list() == ["run1", "run2", "run3"]
    assert table["wall to first"].to_list() == [1.0, 2.0, 3.0]


def test_kernels_named_by_type_against_kernels_named_by_name(shared: Path) -> None:
    folder = shared / "ascend" / "msinsight_cnn"
    files = [
        folder / level / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
        for level in ("level0", "level2")
    ]
    before, after = (npuscope.read(file) for file in files)
    found = analysis.compare(before, after)
    assert any(line.startswith("kernels have their operator types in one") for line in found.not_like_for_like)
