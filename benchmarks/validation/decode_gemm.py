"""A matrix product of one decode step: 16 rows times weights [K, N] in bf16, streamed once.

N is divided evenly over as many of 24 cores as it divides into multiples of 16; every core's weights lie together, as
in the vendor's private format. The result is stored as it leaves the accumulator: the vendor's kernel converts it to
bf16 on that way, without a vector core.

    npuscope simulate benchmarks/validation/decode_gemm.py -- --k 5120 --n 768
"""

import argparse

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

ROWS, CORES, L1 = 16, 24, 1 << 17  # bytes of a weight tile at most


def program(k: int, n: int):
    cores, width = divided(n)
    STEP = max(step for step in range(16, k + 1, 16) if k % step == 0 and step * width * 2 <= L1)

    @pl.jit
    def decode_gemm(
        x: pl.Tensor[[ROWS, k], pl.BF16],
        w: pl.Tensor[[cores * k, width], pl.BF16],
        y: pl.Out[pl.Tensor[[ROWS, cores * width], pl.FP32]],
    ):
        for block in pl.spmd(cores, name_hint="decode_gemm"):
            row = block * k
            acc = pl.matmul(x[:, 0:STEP], w[row : row + STEP, :], out_dtype=pl.FP32)
            for at in pl.pipeline(STEP, k, STEP, stage=2):
                acc = pl.matmul_acc(acc, x[:, at : at + STEP], w[row + at : row + at + STEP, :])
            y[:, block * width : (block + 1) * width] = acc
        return y

    return decode_gemm


def divided(n: int) -> tuple[int, int]:
    """Cores and columns of each; where nothing divides it the last columns are padded."""
    for cores in range(CORES, 15, -1):
        if n % (cores * 16) == 0:
            return cores, n // cores
    return CORES, -(-n // (CORES * 16)) * 16


def main() -> None:
    parser = argparse.ArgumentParser(description="16 × K × N, bf16")
    parser.add_argument("--k", type=int, default=5120)
    parser.add_argument("--n", type=int, default=768)
    options = parser.parse_args()
    cores, width = divided(options.n)
    specs = [
        TensorSpec("x", [ROWS, options.k], pl.BF16),
        TensorSpec("w", [cores * options.k, width], pl.BF16),
        TensorSpec("y", [ROWS, cores * width], pl.FP32, is_output=True),
    ]
    raise SystemExit(run_jit(fn=program(options.k, options.n), specs=specs).error)


if __name__ == "__main__":
    main()
