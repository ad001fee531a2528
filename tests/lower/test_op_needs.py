"""What ops need on chip is what their specs say: reductions of rows have a scratch, all of them."""

from __future__ import annotations

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.ops import reductions

CHIP = load("ascend910b1")
OF_ROWS = [spec.name for spec in reductions.ALL if spec.axis == "rows"]


def vec_bytes(name: str) -> int:
    """Vec that a kernel takes which loads a tile of 128 x 128, reduces it and stores the result."""
    kind = pl.INT32 if "arg" in name else pl.FP32

    @pl.jit
    def kernel(x: pl.Tensor[[128, 128], pl.FP32], y: pl.Out[pl.Tensor[[128, 1], kind]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y = pl.store(getattr(pl, name)(pl.load(x, [0, 0], [128, 128])), [0, 0], y)
        return y

    result = np.zeros((128, 1), np.int32 if "arg" in name else np.float32)
    recording = kernel.record(np.zeros((128, 128), np.float32), result, mode="shapes").recording
    (found,) = Program(recording, CHIP).planned.values()
    return next(space.used for space in found.plan if space.space == "Vec")


@pytest.mark.parametrize("name", OF_ROWS)
def test_a_reduction_of_rows_needs_its_operand_a_scratch_and_its_result_side_by_side(name: str) -> None:
    assert vec_bytes(name) == 2 * 128 * 128 * 4 + 128 * 4
