"""What instructions cost: as their ops say, never by silence, and a run tells what of it is guessed."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.device.chip import load
from npuscope.errors import NpuscopeError
from npuscope.lower.program import Program
from npuscope.ops import table
from npuscope.simulate.certainty import Certainty, certainty_of
from npuscope.simulate.core.standing import standing
from npuscope.simulate.run import simulate

CHIP = load("ascend910b1")


def cycles(name: str) -> float:
    cost = standing(table.spec_of(name), CHIP)
    assert cost is not None
    return cost.cycles


@pytest.mark.parametrize(
    ("name", "like"),
    [
        *(("row_min", "row_max"), ("row_argmax", "row_max"), ("row_argmin", "row_max"), ("row_prod", "row_sum")),
        *(("col_min", "col_max"), ("col_argmax", "col_max"), ("col_argmin", "col_max"), ("col_prod", "col_sum")),
        *(("col_expand_max", "row_expand_max"), ("col_expand_min", "row_expand_min"), ("rem", "div")),
    ],
)
def test_an_op_that_nobody_measured_costs_what_the_nearest_one_does(name: str, like: str) -> None:
    assert cycles(name) == cycles(like)


def test_costs_are_the_formulas_of_the_device_file() -> None:
    # one repeat is 256 bytes: 128 x 128 fp32 are 256 of them
    assert cycles("add") == pytest.approx(10 + 2 * 256 + 14)
    assert cycles("row_max") == pytest.approx(0.0625 * 128 * 128 + 48)
    assert cycles("row_expand") == pytest.approx(0.1176 * 128 * 128 + 34.5)


def test_a_chip_without_a_cost_is_refused_with_its_place() -> None:
    poor = msgspec.structs.replace(CHIP, op={key: cost for key, cost in CHIP.op.items() if key != "vadd"})
    with pytest.raises(NpuscopeError, match=r"has no cost op\.vadd"):
        standing(table.spec_of("add"), poor)


@pl.jit
def squares(x: pl.Tensor[[128, 128], pl.FP32], y: pl.Out[pl.Tensor[[128, 128], pl.INT32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        tile = pl.load(x, [0, 0], [128, 128])
        y = pl.store(pl.cast(pl.mul(tile, tile), pl.INT32), [0, 0], y)
    return y


@pl.jit
def copied(x: pl.Tensor[[128, 128], pl.FP32], y: pl.Out[pl.Tensor[[128, 128], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP):
        y = pl.store(pl.load(x, [0, 0], [128, 128]), [0, 0], y)
    return y


def certainty(program: object, result: type) -> Certainty:
    finished = program.record(np.zeros((128, 128), np.float32), np.zeros((128, 128), result), mode="shapes")
    return certainty_of(simulate(Program(finished.recording, CHIP)).prepared)


def test_a_run_says_what_of_it_is_guessed() -> None:
    sure = certainty(squares, np.int32)
    assert sum(one.share for one in sure.ops) == pytest.approx(1)
    assert [one.op for one in sure.guessed] == ["cast"]
    total = sum(cycles(name) for name in ("load", "mul", "cast", "store"))
    assert sure.guessed_share == pytest.approx(cycles("cast") / total)
    share = f"{sure.guessed_share:.1%}"
    assert str(sure) == f"costs: {share} of the instructions' time is guessed, most of it cast ({share}, op.vconv)"


def test_a_run_without_guesses_says_so() -> None:
    assert str(certainty(copied, np.float32)) == "costs: no instruction has a guessed cost"
