"""The GEMM of pto-isa's guide: C = A · B of n × n × n fp16 on 24 cores as 4 × 6, base tile 128 × 256 × 64.

A core owns n/4 rows and n/6 columns of C. Four K blocks of 64 are loaded into L1 at once, double-buffered.

    npuscope simulate benchmarks/validation/gemm.py -- --size 1536
"""

import argparse

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

ROWS, COLUMNS = 4, 6  # of cores
M, N, K = 128, 256, 64
CACHED = 4  # K blocks in L1


def program(size: int):
    M_STEPS, N_STEPS, K_STEP = size // ROWS // M, size // COLUMNS // N, K * CACHED

    @pl.jit
    def gemm(
        a: pl.Tensor[[size, size], pl.FP16],
        b: pl.Tensor[[size, size], pl.FP16],
        c: pl.Out[pl.Tensor[[size, size], pl.FP32]],
    ):
        for block in pl.spmd(ROWS * COLUMNS, name_hint="gemm"):
            for i in pl.range(M_STEPS):
                for j in pl.range(N_STEPS):
                    m = (block // COLUMNS * M_STEPS + i) * M
                    n = (block % COLUMNS * N_STEPS + j) * N
                    acc = pl.create_tensor([M, N], dtype=pl.FP32)
                    for k in pl.pipeline(0, size, K_STEP, stage=2):
                        if k == 0:
                            acc = pl.matmul(a[m : m + M, 0:K_STEP], b[0:K_STEP, n : n + N], out_dtype=pl.FP32)
                        else:
                            acc = pl.matmul_acc(acc, a[m : m + M, k : k + K_STEP], b[k : k + K_STEP, n : n + N])
                    c[m : m + M, n : n + N] = acc
        return c

    return gemm


def main() -> None:
    parser = argparse.ArgumentParser(description="GEMM of n × n × n, fp16")
    parser.add_argument("--size", type=int, default=6144)
    size = parser.parse_args().size
    specs = [TensorSpec(name, [size, size], pl.FP16) for name in "ab"]
    specs.append(TensorSpec("c", [size, size], pl.FP32, is_output=True))
    raise SystemExit(run_jit(fn=program(size), specs=specs).error)


if __name__ == "__main__":
    main()
