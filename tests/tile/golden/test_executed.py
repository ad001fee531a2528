"""The harness around the tile language's own executor. Lengths steer a loop; a bias is added to the rows they name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

ROWS, COLS = 32, 64


def biased(bias: float):
    @pl.jit
    def program(
        x: pl.Tensor[[ROWS, COLS], pl.BF16],
        lengths: pl.Tensor[[2], pl.INT32],
        y: pl.Out[pl.Tensor[[ROWS, COLS], pl.BF16]],
    ):
        wide = pl.create_tensor([ROWS, COLS], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="widen"):
            wide[:, :] = pl.cast(x[:, :], pl.FP32)
        for k in pl.range(2):
            n = pl.read(lengths, [k])
            for r in pl.range(n):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="row"):
                    row = wide[k * 16 + r : k * 16 + r + 1, :]
                    y[k * 16 + r : k * 16 + r + 1, :] = pl.cast(pl.add(row, bias), pl.BF16, mode="rint")
        return y

    return program


def golden(values) -> None:
    for k, n in enumerate(values["lengths"]):
        rows = slice(16 * k, 16 * k + n)
        values["y"][rows] = (values["x"][rows].astype(np.float32) + np.float32(0.5)).astype(values["y"].dtype)


def specs(dtype=pl.BF16) -> list[TensorSpec]:
    return [
        TensorSpec("x", [ROWS, COLS], dtype, init_value=lambda rng: rng.standard_normal((ROWS, COLS))),
        TensorSpec("lengths", [2], np.int32, init_value=np.array([3, 5])),
        TensorSpec("y", [ROWS, COLS], dtype, is_output=True),
    ]


def test_a_bf16_program_is_right_to_the_last_bit() -> None:
    result = run_jit(biased(0.5), specs(), golden, rtol=0, atol=0)
    assert result.passed, result.error
    written = [row for row in range(ROWS) if result.run.last_writer("y", row * COLS)]
    assert written == [0, 1, 2, 16, 17, 18, 19, 20]


def test_a_wrong_one_names_its_line() -> None:
    lines = Path(__file__).read_text().splitlines()
    number = next(n for n, line in enumerate(lines, 1) if "pl.add(row, bias)" in line)
    result = run_jit(biased(0.75), specs(), golden)
    assert not result.passed
    assert "[0] (0, 0) actual=" in result.error
    assert f"last written by assemble in row (task 1) at test_executed.py:{number}" in result.error


def test_shapes_have_the_tasks_of_values() -> None:
    values = run_jit(biased(0.5), specs()).run.recording
    shapes = run_jit(biased(0.5), specs(), compile_only=True).run.recording
    assert [task.kernel for task in shapes.tasks] == [task.kernel for task in values.tasks] == ["widen"] + ["row"] * 8
    assert shapes.bodies == values.bodies


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_a_type_that_the_chip_has_not_is_refused(dtype) -> None:
    with pytest.raises(Exception, match="which the chip has not"):
        run_jit(biased(0.5), specs(dtype), compile_only=True)
