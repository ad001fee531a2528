"""RMSNorm: y = x / sqrt(mean(x²) + eps) * gamma, over rows too long for one tile.

Each task walks its 16 rows twice in chunks of 256 columns: first to sum the squares, then to scale. The sum lives on
chip between the two walks; x is read from global memory twice. `pl.pipeline(stage=2)` is a loop whose tiles get two
buffers, so that the next chunk loads while this one computes.
"""

import numpy as np

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

ROWS, HIDDEN = 128, 2048
ROW_TILE, CHUNK = 16, 256
EPS = 1e-6


@pl.jit
def rms_norm(
    x: pl.Tensor[[ROWS, HIDDEN], pl.FP32],
    gamma: pl.Tensor[[1, HIDDEN], pl.FP32],
    y: pl.Out[pl.Tensor[[ROWS, HIDDEN], pl.FP32]],
):
    for row in pl.parallel(0, ROWS, ROW_TILE):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rms_norm"):
            squares = pl.full([1, ROW_TILE], dtype=pl.FP32, value=0.0)
            for col in pl.pipeline(0, HIDDEN, CHUNK, stage=2):
                tile = x[row : row + ROW_TILE, col : col + CHUNK]
                # a column [16, 1] of sums, laid down as a row: element-wise work is faster on rows
                chunk_squares = pl.reshape(pl.row_sum(pl.mul(tile, tile)), [1, ROW_TILE])
                squares = pl.add(squares, chunk_squares)
            scale = pl.rsqrt(pl.add(pl.mul(squares, 1.0 / HIDDEN), EPS))
            scale = pl.reshape(scale, [ROW_TILE, 1])
            for col in pl.pipeline(0, HIDDEN, CHUNK, stage=2):
                tile = x[row : row + ROW_TILE, col : col + CHUNK]
                scaled = pl.row_expand_mul(tile, scale)
                y[row : row + ROW_TILE, col : col + CHUNK] = pl.col_expand_mul(scaled, gamma[:, col : col + CHUNK])
    return y


def golden(tensors: dict) -> None:
    x = tensors["x"]
    tensors["y"][:] = x / np.sqrt((x * x).mean(axis=1, keepdims=True) + EPS) * tensors["gamma"]


def run() -> RunResult:
    specs = [
        TensorSpec("x", [ROWS, HIDDEN], pl.FP32, init_value=lambda rng: rng.normal(size=(ROWS, HIDDEN))),
        TensorSpec("gamma", [1, HIDDEN], pl.FP32, init_value=lambda rng: rng.normal(1, 0.1, (1, HIDDEN))),
        TensorSpec("y", [ROWS, HIDDEN], pl.FP32, is_output=True),
    ]
    # fp32 on both sides: the sum of squares is taken in another order, eight chunks instead of one row
    return run_jit(fn=rms_norm, specs=specs, golden_fn=golden, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    raise SystemExit(run().error)  # None: exit code 0; else the mismatches are printed, exit code 1
