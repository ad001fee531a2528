"""Softmax of every row: y = exp(x - max(x)) / sum(exp(x - max(x))). Start reading here.

A tile program has two planes. The function's own body is the *orchestration*: it loops, takes views and launches
tasks, and computes nothing. A `with pl.at(...)` block is a *region*: one task on one core, which loads tiles from
global memory, computes on chip and stores its result. Here 16 tasks take 32 rows each; none needs another, so they
may all run at once.
"""

import numpy as np

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

ROWS, COLS = 512, 256
ROW_TILE = 32  # a tile of 32 x 256 fp32 is 32 KB; the vector unit's memory holds 184 KB


@pl.jit
def softmax(
    x: pl.Tensor[[ROWS, COLS], pl.FP32],
    y: pl.Out[pl.Tensor[[ROWS, COLS], pl.FP32]],
):
    for row in pl.parallel(0, ROWS, ROW_TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="softmax"):
            tile = x[row : row + ROW_TILE, :]  # in a region a slice is a load
            largest = pl.row_max(tile)  # [32, 1]; without it exp overflows
            weights = pl.exp(pl.row_expand_sub(tile, largest))
            y[row : row + ROW_TILE, :] = pl.row_expand_div(weights, pl.row_sum(weights))
    return y


def golden(tensors: dict) -> None:
    weights = np.exp(tensors["x"] - tensors["x"].max(axis=1, keepdims=True))
    tensors["y"][:] = weights / weights.sum(axis=1, keepdims=True)


def run() -> RunResult:
    specs = [
        TensorSpec("x", [ROWS, COLS], pl.FP32, init_value=lambda rng: rng.normal(0, 50, (ROWS, COLS))),
        TensorSpec("y", [ROWS, COLS], pl.FP32, is_output=True),
    ]
    # fp32 on both sides: only the order of the sum and the last bit of exp may differ
    return run_jit(fn=softmax, specs=specs, golden_fn=golden, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    raise SystemExit(run().error)  # None: exit code 0; else the mismatches are printed, exit code 1
