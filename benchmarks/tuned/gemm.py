"""A matrix product whose three tile sizes and pipeline depth are free: what benchmarks/tune.py searches."""

import numpy as np

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

M, N, K = 512, 3072, 2048
TILE_M, TILE_N, TILE_K, STAGES = 64, 128, 128, 2


@pl.jit
def gemm(a: pl.Tensor[[M, K], pl.BF16], b: pl.Tensor[[K, N], pl.BF16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]):
    for block in pl.spmd((M // TILE_M) * (N // TILE_N), name_hint="gemm"):
        m = block // (N // TILE_N) * TILE_M
        n = block % (N // TILE_N) * TILE_N
        total = pl.matmul(a[m : m + TILE_M, 0:TILE_K], b[0:TILE_K, n : n + TILE_N])
        for k in pl.pipeline(TILE_K, K, TILE_K, stage=STAGES):
            total = pl.matmul_acc(total, a[m : m + TILE_M, k : k + TILE_K], b[k : k + TILE_K, n : n + TILE_N])
        c[m : m + TILE_M, n : n + TILE_N] = total
    return c


def golden(tensors: dict) -> None:
    tensors["c"][:] = tensors["a"].astype(np.float32) @ tensors["b"].astype(np.float32)


if __name__ == "__main__":
    specs = [
        TensorSpec("a", [M, K], pl.BF16, init_value=lambda rng: rng.normal(size=(M, K))),
        TensorSpec("b", [K, N], pl.BF16, init_value=lambda rng: rng.normal(size=(K, N))),
        TensorSpec("c", [M, N], pl.FP32, is_output=True),
    ]
    raise SystemExit(run_jit(fn=gemm, specs=specs, golden_fn=golden, rtol=1e-3, atol=1e-3).error)
