"""A stand-in for #662: weights of Qwen3-14B times 128 tokens, in many small or few large tasks.

Measured were 40 layers with everything in them, 8,776 and 793 tasks per layer. Here is a quarter of one layer's
weights, 165 MB in 2,016 or 252 tasks: sums over K go through GM in 8 parts (`--tasks many`) or stay on chip (`few`).

    npuscope simulate benchmarks/validation/prefill_tasks.py -- --tasks few
"""

import argparse

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

TOKENS, K, WIDTH, N, PARTS, STEP = 128, 5120, 16128, 64, 8, 128


def many():
    @pl.jit
    def prefill_many(
        x: pl.Tensor[[TOKENS, K], pl.BF16],
        w: pl.Tensor[[K, WIDTH], pl.BF16],
        out: pl.Out[pl.Tensor[[TOKENS, WIDTH], pl.FP32]],
    ):
        for block in pl.parallel(WIDTH // N):
            n0 = block * N
            total = pl.create_tensor([TOKENS, N], dtype=pl.FP32)
            for part in pl.range(PARTS):
                with pl.at(level=pl.Level.CORE_GROUP, name_hint="part", optimizations=[pl.split(pl.SplitMode.UP_DOWN)]):
                    first = part * (K // PARTS)
                    acc = pl.matmul(x[:, first : first + STEP], w[first : first + STEP, n0 : n0 + N])
                    for step in pl.range(1, K // PARTS // STEP):
                        k0 = first + step * STEP
                        acc = pl.matmul_acc(acc, x[:, k0 : k0 + STEP], w[k0 : k0 + STEP, n0 : n0 + N])
                    if part == 0:
                        total[:, :] = acc
                    elif part == PARTS - 1:
                        out[:, n0 : n0 + N] = pl.add(total[:, :], acc)
                    else:
                        total[:, :] = pl.add(total[:, :], acc)
        return out

    return prefill_many


def few():
    @pl.jit
    def prefill_few(
        x: pl.Tensor[[TOKENS, K], pl.BF16],
        w: pl.Tensor[[K, WIDTH], pl.BF16],
        out: pl.Out[pl.Tensor[[TOKENS, WIDTH], pl.FP32]],
    ):
        for block in pl.parallel(WIDTH // N):
            n0 = block * N
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="whole"):
                acc = pl.matmul(x[:, 0:STEP], w[0:STEP, n0 : n0 + N])
                for step in pl.range(1, K // STEP):
                    k0 = step * STEP
                    acc = pl.matmul_acc(acc, x[:, k0 : k0 + STEP], w[k0 : k0 + STEP, n0 : n0 + N])
                out[:, n0 : n0 + N] = acc
        return out

    return prefill_few


def main() -> None:
    parser = argparse.ArgumentParser(description="weights times 128 tokens")
    parser.add_argument("--tasks", choices=["many", "few"], default="many")
    fn = many() if parser.parse_args().tasks == "many" else few()
    specs = [TensorSpec("x", [TOKENS, K], pl.BF16), TensorSpec("w", [K, WIDTH], pl.BF16)]
    specs.append(TensorSpec("out", [TOKENS, WIDTH], pl.FP32, is_output=True))
    raise SystemExit(run_jit(fn=fn, specs=specs).error)


if __name__ == "__main__":
    main()
