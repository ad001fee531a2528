"""LayerNorm: y = (x - mean) / sqrt(var + eps) * gamma + beta, with two tasks that depend on each other.

The first kernel leaves the mean and 1/std of every row in global memory, the second uses them. Nobody says that
`apply` must wait for `statistics`: the runtime sees that it reads what the other writes. Statement order alone would
order nothing. (One fused task would be faster: this is here to show a dependency.)
"""

import numpy as np

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

ROWS, HIDDEN = 256, 512
ROW_TILE = 16
BLOCKS = ROWS // ROW_TILE
EPS = 1e-5


@pl.jit
def layer_norm(
    x: pl.Tensor[[ROWS, HIDDEN], pl.FP32],
    gamma: pl.Tensor[[1, HIDDEN], pl.FP32],
    beta: pl.Tensor[[1, HIDDEN], pl.FP32],
    y: pl.Out[pl.Tensor[[ROWS, HIDDEN], pl.FP32]],
):
    mean = pl.create_tensor([ROWS, 1], dtype=pl.FP32)  # outside a region: global memory, not yet written
    inverse_std = pl.create_tensor([ROWS, 1], dtype=pl.FP32)

    for block in pl.spmd(BLOCKS, name_hint="statistics"):
        row = block * ROW_TILE
        tile = x[row : row + ROW_TILE, :]
        tile_mean = pl.row_sum(pl.mul(tile, 1.0 / HIDDEN))
        centred = pl.row_expand_sub(tile, tile_mean)
        variance = pl.row_sum(pl.mul(pl.mul(centred, centred), 1.0 / HIDDEN))
        mean[row : row + ROW_TILE, :] = tile_mean
        inverse_std[row : row + ROW_TILE, :] = pl.rsqrt(pl.add(variance, EPS))

    for block in pl.spmd(BLOCKS, name_hint="apply"):
        row = block * ROW_TILE
        centred = pl.row_expand_sub(x[row : row + ROW_TILE, :], mean[row : row + ROW_TILE, :])
        normed = pl.row_expand_mul(centred, inverse_std[row : row + ROW_TILE, :])
        y[row : row + ROW_TILE, :] = pl.col_expand_add(pl.col_expand_mul(normed, gamma[:, :]), beta[:, :])
    return y


def golden(tensors: dict) -> None:
    x = tensors["x"]
    normed = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + EPS)
    tensors["y"][:] = normed * tensors["gamma"] + tensors["beta"]


def run() -> RunResult:
    specs = [
        TensorSpec("x", [ROWS, HIDDEN], pl.FP32, init_value=lambda rng: rng.normal(3, 2, (ROWS, HIDDEN))),
        TensorSpec("gamma", [1, HIDDEN], pl.FP32, init_value=lambda rng: rng.normal(1, 0.1, (1, HIDDEN))),
        TensorSpec("beta", [1, HIDDEN], pl.FP32, init_value=lambda rng: rng.normal(0, 0.1, (1, HIDDEN))),
        TensorSpec("y", [ROWS, HIDDEN], pl.FP32, is_output=True),
    ]
    # fp32 on both sides: sums of 512 in another order
    return run_jit(fn=layer_norm, specs=specs, golden_fn=golden, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    raise SystemExit(run().error)  # None: exit code 0; else the mismatches are printed, exit code 1
