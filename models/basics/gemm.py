"""Matrix product C = A · B in tiles, bf16 in, fp32 out.

The cube unit multiplies small tiles and adds up in its accumulator: `pl.matmul` starts a sum, `pl.matmul_acc` adds to
it. Each of the 16 blocks owns one 128 x 128 tile of C and walks along K; the accumulator (64 KB of 128 KB) leaves the
chip once. `pl.pipeline(stage=2)` keeps two pairs of input tiles (2 x 64 KB), so loading and multiplying overlap.
"""

import numpy as np

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

M, N, K = 512, 512, 1024
TILE = 128  # rows, columns and K steps; the cube wants multiples of 16
COLUMNS = N // TILE
BLOCKS = (M // TILE) * COLUMNS


@pl.jit
def gemm(
    a: pl.Tensor[[M, K], pl.BF16],
    b: pl.Tensor[[K, N], pl.BF16],
    c: pl.Out[pl.Tensor[[M, N], pl.FP32]],
):
    for block in pl.spmd(BLOCKS, name_hint="gemm"):
        m = block // COLUMNS * TILE
        n = block % COLUMNS * TILE
        total = pl.matmul(a[m : m + TILE, 0:TILE], b[0:TILE, n : n + TILE])
        for k in pl.pipeline(TILE, K, TILE, stage=2):
            total = pl.matmul_acc(total, a[m : m + TILE, k : k + TILE], b[k : k + TILE, n : n + TILE])
        c[m : m + TILE, n : n + TILE] = total
    return c


def golden(tensors: dict) -> None:
    tensors["c"][:] = tensors["a"].astype(np.float64) @ tensors["b"].astype(np.float64)


def run() -> RunResult:
    specs = [
        TensorSpec("a", [M, K], pl.BF16, init_value=lambda rng: rng.normal(size=(M, K))),
        TensorSpec("b", [K, N], pl.BF16, init_value=lambda rng: rng.normal(size=(K, N))),
        TensorSpec("c", [M, N], pl.FP32, is_output=True),
    ]
    # products of bf16 are exact in fp32; 1024 of them, summed in fp32, miss the double sum by about 1e-5
    return run_jit(fn=gemm, specs=specs, golden_fn=golden, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    raise SystemExit(run().error)  # None: exit code 0; else the mismatches are printed, exit code 1
