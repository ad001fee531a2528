"""Kernels of a capture and of a program meet by name, whatever numbers a compiler put behind them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from npuscope.time.measured.observed import paired

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
