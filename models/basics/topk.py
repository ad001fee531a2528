"""The k largest of every row with their positions, by the sorting instructions.

`sort32` sorts every 32 values and pairs each with its index: value, index, value, index, … `mrgsort` merges four
sorted runs into one: runs of 64 positions (32 pairs) become 256, then 1024, which is the whole row of 512 pairs. The
first k pairs are the answer; `gather` with a mask takes the even positions (values) and the odd ones (indices, kept
as bits) apart.
"""

import numpy as np

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

ROWS, COLS, K = 32, 512, 16
ROW_TILE = 8


@pl.jit
def topk(
    x: pl.Tensor[[ROWS, COLS], pl.FP32],
    values: pl.Out[pl.Tensor[[ROWS, K], pl.FP32]],
    indices: pl.Out[pl.Tensor[[ROWS, K], pl.INT32]],
):
    for block in pl.spmd(ROWS // ROW_TILE, name_hint="topk"):
        ramp = pl.arange(0, [1, COLS], dtype=pl.UINT32)
        for r in pl.range(ROW_TILE):  # the sorting instructions take one row
            row = block * ROW_TILE + r
            pairs = pl.sort32(x[row : row + 1, :], ramp)
            pairs = pl.mrgsort(pairs, block_len=64)
            pairs = pl.mrgsort(pairs, block_len=256)
            best = pairs[:, 0 : 2 * K]
            values[row : row + 1, :] = pl.gather(best, mask_pattern=pl.tile.MaskPattern.P0101)
            indices[row : row + 1, :] = pl.gather(best, mask_pattern=pl.tile.MaskPattern.P1010, output_dtype=pl.INT32)
    return values, indices


def golden(tensors: dict) -> None:
    order = np.argsort(-tensors["x"], axis=1, kind="stable")[:, :K]
    tensors["values"][:] = np.take_along_axis(tensors["x"], order, axis=1)
    tensors["indices"][:] = order


def run() -> RunResult:
    specs = [
        # distinct values (a shuffled ramp), so that the indices have one right answer
        TensorSpec("x", [ROWS, COLS], pl.FP32, init_value=lambda rng: rng.permutation(ROWS * COLS).reshape(ROWS, COLS)),
        TensorSpec("values", [ROWS, K], pl.FP32, is_output=True),
        TensorSpec("indices", [ROWS, K], pl.INT32, is_output=True),
    ]
    # sorting computes nothing: exact
    return run_jit(fn=topk, specs=specs, golden_fn=golden, rtol=0, atol=0)


if __name__ == "__main__":
    raise SystemExit(run().error)  # None: exit code 0; else the mismatches are printed, exit code 1
