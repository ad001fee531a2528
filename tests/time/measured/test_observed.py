"""What a run says of its kernels and its scheduler, from swimlanes whose numbers one can count."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import Task, made
from swimlanes import LAYOUTS, write

from npuscope.base.errors import BadInput
from npuscope.time.measured.observed import Observed, observed_in, paired, walls
from npuscope.trace import read


def test_means_lags_and_the_wall_of_a_small_run() -> None:
    """Two cube cores: `a` twice on the one, the second put behind the first; `b` on the other, when it is idle."""
    run = observed_in(
        made(
            [
                Task(1, "a", "AIC_0", 10, 20, 9, 21),
                Task(2, "a", "AIC_0", 20.5, 32.5, 12, 34),
                Task(3, "b", "AIC_1", 5, 6, 2, 6.5),
                Task(4, "b", "AIC_1", 41, 44, 40, 45),
            ]
        )
    )
    assert {name: (one.blocks, one.ns) for name, one in run.kernels.items()} == {"a": (2, 11_000), "b": (2, 2_000)}
    assert run.costs == {"pickup": 1_000, "switch": 500, "finish": 1_000}  # the first of a core finds it cold
    assert (run.wall_ns, run.span_ns) == (43_000, 39_000)


def test_a_mixed_block_takes_as_long_as_its_longer_part() -> None:
    run = observed_in(
        made([Task(1, "fa", "AIC_0", 0, 9), Task(1, "fa", "AIV_0", 0, 12), Task(1, "fa", "AIV_1", 0, 10)])
    )
    assert (run.kernels["fa"].blocks, run.kernels["fa"].ns) == (1, 11_000)
    assert (run.costs, run.wall_ns, run.span_ns) == ({}, None, 12_000)


def test_walls_are_compared_by_what_both_tell() -> None:
    without, whole = Observed({}, {}, None, 90.0), Observed({}, {}, 120.0, 100.0)
    assert walls(without, whole) == (90, 100)
    assert walls(whole, whole) == (120, 120)


def test_several_runs_of_one_capture_count_once() -> None:
    tasks = [Task(n, "a", "AIC_0", 100 * n, 100 * n + 10 + n, more=(("step", n),)) for n in range(3)]
    run = observed_in(made(tasks))
    assert (run.kernels["a"].blocks, run.kernels["a"].ns) == (1, 11_000)
    assert run.span_ns == 11_000


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_of_a_swimlane_tells_blocks_and_lags(layout: str, tmp_path: Path) -> None:
    made_of = LAYOUTS[layout]()
    run = observed_in(read(write(tmp_path, made_of)))
    tick = 1e9 / made_of["metadata"]["clock_freq_hz"]
    slices = [count for one in run.kernels.values() for _, count, _ in one.units]
    assert sum(slices) == 3
    assert run.wall_ns is not None
    assert sum(one.core_ns for one in run.kernels.values()) == tick * (500 + 100 + 100)


def test_what_has_no_blocks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no task on an AIC or AIV core"):
        observed_in(made([Task(1, "gemm", "stream_0", 0, 9)]))
    with pytest.raises(BadInput, match="how long a core held a block"):
        observed_in(made([Task(1, "gemm", "AIC_0", 0, 9)], format="tracr"))


NAMES = st.lists(
    st.builds(
        lambda word, tails: word + "".join(tails),
        st.sampled_from(["gate", "up", "stage", "f.<locals>.gate"]),
        st.lists(st.sampled_from(["_0", "_1", "_12", "_aic", "_aiv"]), max_size=2),
    ),
    max_size=6,
    unique=True,
)


def found(simulated: list[str], measured: list[str]) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    return {pair.name: (pair.simulated, pair.measured) for pair in paired(simulated, measured)}


def test_numbered_callables_of_one_kernel_are_one() -> None:
    assert found(["gate_proj", "silu"], ["gate_proj", "gate_proj_0", "gate_proj_4", "silu"]) == {
        "gate_proj": (("gate_proj",), ("gate_proj", "gate_proj_0", "gate_proj_4")),
        "silu": (("silu",), ("silu",)),
    }


def test_a_kernel_whose_own_name_ends_in_a_number_stays_itself() -> None:
    assert found(["stage_1", "stage_2"], ["stage_2", "stage_1", "stage_2_0"]) == {
        "stage_1": (("stage_1",), ("stage_1",)),
        "stage_2": (("stage_2",), ("stage_2", "stage_2_0")),
    }


def test_both_functions_of_a_mixed_kernel_are_it_and_a_factory_is_left_out() -> None:
    assert found(["make.<locals>.fa"], ["fa_aic", "fa_aiv_3"]) == {
        "fa": (("make.<locals>.fa",), ("fa_aic", "fa_aiv_3"))
    }


def test_where_only_the_simulation_numbers_them_they_meet_too() -> None:
    assert found(["a_0", "a_1"], ["a"]) == {"a": (("a_0", "a_1"), ("a",))}
    assert found(["a_0", "b"], ["a_7", "c"]) == {"a": (("a_0",), ("a_7",)), "b": (("b",), ()), "c": ((), ("c",))}


@given(NAMES, NAMES)
def test_every_name_is_in_one_pair(simulated: list[str], measured: list[str]) -> None:
    pairs = paired(simulated, measured)
    assert sorted(name for pair in pairs for name in pair.simulated) == sorted(simulated)
    assert sorted(name for pair in pairs for name in pair.measured) == sorted(measured)
    assert len({pair.name for pair in pairs}) == len(pairs)


@given(NAMES)
def test_equal_sides_pair_name_by_name(names: list[str]) -> None:
    plain = [name for name in names if "<locals>" not in name]
    assert found(plain, plain) == {name: ((name,), (name,)) for name in plain}
