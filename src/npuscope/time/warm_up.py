# mypy: ignore-errors
"""A program that needs all of the simulator: processes run it to have machine code before anybody waits."""

import os
import sys

import numpy as np

import npuscope.tile as pl
from npuscope.lower.program import Program
from npuscope.tile.run.execute import record
from npuscope.time.run import chip_to_time, simulate

DEVICE = "ascend910b1"


@pl.jit
def smallest(
    x: pl.Tensor[[64, 64], pl.FP32],
    w: pl.Tensor[[64, 64], pl.FP32],
    y: pl.Out[pl.Tensor[[64, 64], pl.FP32]],
):
    """A product and a row's sum in one task: both kinds of cores."""
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="smallest"):
        product = pl.matmul(x[0:64, :], w[0:64, :])
        y[0:64, :] = pl.row_expand_sub(product, pl.row_sum(product))
    return y


def smallest_run() -> Program:
    """That program, recorded."""
    arrays = [np.ones((64, 64), np.float32) for _ in range(3)]
    return Program(record(smallest, *arrays, mode="values").recording, chip_to_time(DEVICE))


def compile_now() -> None:
    if sys.platform != "win32":
        os.nice(5)
    simulate(smallest_run())
