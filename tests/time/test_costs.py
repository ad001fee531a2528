"""What instructions cost: as their ops say, never by silence, and a run tells what of it is guessed."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.ops import table
from npuscope.time.certainty import Certainty, certainty_of
from npuscope.time.change_job import with_jitter
from npuscope.time.core.costs import op_price
from npuscope.time.run import simulate

CHIP = load("ascend910b1")


def cycles(name: str) -> float:
    cost = op_price(table.spec_of(name), CHIP)
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


def test_what_goes_to_another_rank_costs_what_its_links_do() -> None:
    per, rate = CHIP.clock.core.value, CHIP.timing["put_rate"].value
    assert cycles("put") == pytest.approx(per * (CHIP.timing["put_remote"].value + 4 * 128 * 128 / rate))
    assert cycles("remote_store") == pytest.approx(per * (CHIP.timing["remote_store"].value + 4 * 128 * 128 / rate))
    assert cycles("wait") == pytest.approx(per * CHIP.timing["signal_wait"].value)


def price(name: str, shape: tuple[int, int]) -> float:
    cost = op_price(table.spec_of(name), CHIP, shape)
    assert cost is not None
    return cost.cycles


def test_what_the_library_does_row_by_row_or_one_by_one_is_counted_so() -> None:
    # an index gather: a loop over rows; a mask scatter and a range: the scalar unit, element by element
    assert price("gather", (256, 64)) - price("gather", (128, 64)) == pytest.approx(128 * (150 + 2))
    assert price("scatter", (128, 64)) - price("scatter", (128, 32)) == pytest.approx(30 * 128 * 32 + 128 / 2)
    assert price("arange", (1, 64)) == pytest.approx(8 * 64)


def test_a_chip_without_a_cost_is_refused_with_its_place() -> None:
    poor = msgspec.structs.replace(CHIP, op={key: cost for key, cost in CHIP.op.items() if key != "vadd"})
    with pytest.raises(NpuscopeError, match=r"has no cost op\.vadd"):
        op_price(table.spec_of("add"), poor)


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


def certainty(program: Any, result: type) -> Certainty:
    finished = program.record(np.zeros((128, 128), np.float32), np.zeros((128, 128), result), mode="shapes")
    return certainty_of(simulate(Program(finished.recording, CHIP)))


def test_every_part_of_the_time_rests_on_a_constant_of_known_confidence() -> None:
    sure = certainty(squares, np.int32)
    assert sum(one.share for one in sure.parts) == pytest.approx(1)
    assert sum(sure.shares.values()) == pytest.approx(1)
    found = {(one.op, one.place): one for one in sure.parts}
    ops = {name: found[name, place].share for name, place in (("cast", "op.vconv"), ("mul", "op.vmul"))}
    assert ops["cast"] / ops["mul"] == pytest.approx(cycles("cast") / cycles("mul"))  # both run in the one block
    assert found["", "timing.fin_visible"].share > 0  # the scheduler's are there too
    assert found["", "timing.block_start"].share > 0


def test_the_guess_that_matters_most_is_tried_with_half_more_and_less_of_it() -> None:
    sure = certainty(squares, np.int32)
    assert sure.guess is not None
    assert sure.guess.part.confidence == "guessed"
    assert sure.guess.half is not None
    assert sure.guess.more is not None
    assert sure.guess.half <= 1 <= sure.guess.more
    assert sure.guess.part.what in str(sure.guess)


def test_a_run_with_noise_rests_on_the_same_constants() -> None:
    # GIVEN a chip that guesses how long a block takes to begin, and a run whose noise makes sixteen of every class
    guessed = {**CHIP.timing, "block_start": msgspec.structs.replace(CHIP.timing["block_start"], confidence="guessed")}
    chip = msgspec.structs.replace(CHIP, timing=guessed)
    finished = squares.record(np.zeros((128, 128), np.float32), np.zeros((128, 128), np.int32), mode="shapes")
    calm = simulate(Program(finished.recording, chip))
    sure, noisy = certainty_of(calm), certainty_of(with_jitter(calm, 1))
    # THEN it rests on the constants of the run without noise, and the guess is tried on the blocks of the noise
    assert {(one.op, one.place) for one in noisy.parts} == {(one.op, one.place) for one in sure.parts}
    assert sum(noisy.shares.values()) == pytest.approx(1)
    for guess in (sure.guess, noisy.guess):
        assert guess is not None
        assert guess.part.place == "timing.block_start"
        assert guess.half is not None
        assert guess.more is not None
        assert guess.half <= 1 <= guess.more  # a little more or less may end within the same round of polls
        assert guess.moves > 0


def test_a_chip_without_guesses_has_none_that_matters() -> None:
    known = {key: msgspec.structs.replace(one, confidence="fitted") for key, one in CHIP.timing.items()}
    finished = copied.record(np.zeros((128, 128), np.float32), np.zeros((128, 128), np.float32), mode="shapes")
    sure = certainty_of(simulate(Program(finished.recording, msgspec.structs.replace(CHIP, timing=known))))
    assert sure.shares["guessed"] == 0
    assert sure.guess is None
