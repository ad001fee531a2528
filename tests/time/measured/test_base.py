"""A change predicted on top of a capture: runs of one chip stand in for captures, another chip predicts them."""

from __future__ import annotations

import csv
import math
from statistics import median

import pytest
from other_chips import CHIP, LAYER, other, program_on, random_chip
from real_data import DATA

from npuscope.base.errors import BadInput
from npuscope.time.chip.prepare import prepare
from npuscope.time.measured.base import (
    CHANGED,
    NEW,
    UNCHANGED,
    Factors,
    MeasuredBase,
    MeasuredChange,
    anchor,
    anchored,
    predict,
    states,
)
from npuscope.time.measured.observed import KernelTime, Observed, observed_in, observed_of
from npuscope.time.run import run, simulate

MEASURED = DATA / "measured"
SHORTER = ("--context", "1024")  # the change: attention over a quarter of the context


def on_top(seed: int) -> tuple[MeasuredChange, float]:
    """The changed layer on top of a run of another chip, and what it takes on that chip."""
    there = random_chip(seed)
    capture = observed_in(simulate(program_on(there)).trace)
    found = anchor(prepare(program_on(CHIP)), capture)
    here, true = (simulate(program_on(chip, LAYER, *SHORTER)) for chip in (CHIP, there))
    return predict(found, here), true.wall


def test_changes_on_top_of_a_capture_land_much_nearer_than_without() -> None:
    without, with_it = [], []
    for seed in range(5):
        found, true = on_top(seed)
        without.append(abs(math.log(found.plain.wall / true)))
        with_it.append(abs(math.log(found.run.wall / true)))
        off = found.anchor.anchored_ns / (found.anchor.measured_ns or 0)
        assert abs(math.log(off)) < 0.03, "the run before the change is made as long as measured"
    assert max(with_it) < 0.05
    assert median(with_it) < 0.3 * median(without), (without, with_it)


def test_kernels_and_costs_become_what_was_measured() -> None:
    there = other(load_cube_hbm=0.8, load_cube_l2=0.8, hbm_rate=0.85, block_start=1.5, pickup=2, dispatch_block=2)
    found = anchor(prepare(program_on(CHIP)), observed_in(simulate(program_on(there)).trace))
    assert found.only_measured == found.only_simulated == found.other_blocks == ()
    for one in found.kernels:
        assert one.measured is not None
        assert one.anchored is not None
        assert one.anchored.ns == pytest.approx(one.measured.ns, rel=0.01), one.kernel
        assert one.anchored.blocks == one.measured.blocks
    costs = {row["cost"]: row for row in found.tables()["costs"].rows()}
    assert costs.keys() == {"pickup", "switch", "finish", "dispatch", "submit"}
    assert costs["pickup"]["factor"] == pytest.approx(2)
    assert costs["submit"]["factor"] == pytest.approx(1)
    for cost, row in costs.items():
        assert row["anchored_ns"] == pytest.approx(row["measured_ns"], rel=0.1), cost


def test_a_capture_of_the_same_chip_changes_nothing() -> None:
    prepared = prepare(program_on(CHIP))
    plain = run(prepared)
    found = anchor(prepared, observed_in(plain.trace))
    # a capture's stamps are whole nanoseconds
    assert found.anchored_ns == pytest.approx(found.simulated_ns, rel=1e-3)
    assert found.measured_ns == found.simulated_ns
    for factor in (*found.factors.kernels.values(), *found.factors.costs.values()):
        assert factor == pytest.approx(1, abs=1e-3)


def test_slower_blocks_take_their_factor_longer_though_memory_is_shared() -> None:
    prepared = prepare(program_on(CHIP))
    plain, slow = observed_of(run(prepared)), observed_of(anchored(prepared, Factors({"gate_proj": 1.3})))
    assert slow.kernels["gate_proj"].ns == pytest.approx(1.3 * plain.kernels["gate_proj"].ns, rel=0.05)
    assert slow.kernels["down_proj"].ns == pytest.approx(plain.kernels["down_proj"].ns, rel=0.05)


def test_a_kernel_that_nobody_measured_is_off_as_others_are() -> None:
    assert Factors({"a": 1.2, "b": 1.4}).typical == 1.0, "two are too few to speak for others"
    several = Factors({"a": 1.2, "b": 1.4, "c_3": 0.5})
    assert several.typical == 1.2
    assert several.of(["a", "b_2", "c", "d"]) == {"a": 1.2, "b_2": 1.4, "c": 0.5, "d": None}


def test_a_prediction_tells_what_changed_and_how_sure_it_is() -> None:
    found, _ = on_top(0)
    by_state: dict[str, set[str]] = {}
    for kernel, state in found.states.items():
        by_state.setdefault(state, set()).add(kernel)
    assert {"fa_fused", "online_softmax"} <= by_state[CHANGED]
    assert {"gate_proj", "up_proj", "down_proj", "q_proj"} <= by_state[UNCHANGED]
    assert NEW not in by_state
    rows = {row["kernel"]: row for row in found.tables()["kernels"].rows()}
    assert rows["fa_fused"]["state"] == CHANGED
    assert rows["gate_proj"]["new_ns"] == pytest.approx(rows["gate_proj"]["measured_ns"], rel=0.05)
    # unchanged kernels carry less doubt than the one that the change is about
    spread = {kernel: high / low for kernel, (low, high) in found.spread().items()}
    assert spread["gate_proj"] < spread["fa_fused"]
    wall, expected = found.wall, found.expected
    assert wall.low < wall.value == found.run.wall_ns < wall.high
    assert expected is not None
    assert expected.value == pytest.approx((found.anchor.measured_ns or 0) * found.change.ratio.value)
    assert expected.high / expected.value == pytest.approx(wall.high / wall.value)


def test_a_program_against_itself_is_unchanged() -> None:
    prepared = prepare(program_on(CHIP))
    assert set(states(prepared, prepare(program_on(CHIP))).values()) == {UNCHANGED}


def test_a_capture_of_another_program_is_refused_with_names() -> None:
    stranger = Observed({"conv": KernelTime((("AIC", 4, 4000.0),))}, {})
    with pytest.raises(BadInput, match="none of its kernels is the program's: it has conv; the program has q_proj"):
        anchor(prepare(program_on(CHIP)), stranger)


def of_table(rows: list[dict[str, str]]) -> Observed:
    """A published table of kernels as a run without lags and wall."""
    kernels = {}
    for row in rows:
        units = ("AIC", "AIV") if row["unit"] == "MIX" else (row["unit"],)
        blocks, time = float(row["blocks"]), 1e3 * float(row["total_us"])
        kernels[row["kernel"]] = KernelTime(tuple((unit, blocks, time) for unit in units))
    return Observed(kernels, {})


@pytest.mark.skipif(not MEASURED.is_dir(), reason="the measured tables are not on this machine")
def test_the_published_blocks_of_a_layer() -> None:
    with (MEASURED / "qwen3_mainline_blocks.csv").open() as source:
        table = of_table(list(csv.DictReader(line for line in source if not line.startswith("#"))))
    found: MeasuredBase = anchor(prepare(program_on(CHIP)), table)
    assert {"attn_swpipe", "copy_out"} <= {one.kernel for one in found.only_measured}  # another form of attention
    assert "fa_fused" in {one.kernel for one in found.only_simulated}
    assert found.other_blocks == ()
    assert len(found.matched) >= 13
    for one in found.matched:
        assert one.measured is not None
        assert one.anchored is not None
        assert one.anchored.ns == pytest.approx(one.measured.ns, rel=0.01), one.kernel
    assert found.measured_ns is None
