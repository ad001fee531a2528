"""RoPE of the query heads of one KV head: five heads one by one, or as one tile with one store (#602).

npuscope simulate benchmarks/validation/rope_heads.py -- --heads together
"""

import argparse

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

ITEMS, BLOCKS, HEADS, DIM, HALF = 4, 32, 5, 128, 64


def program(together: bool):
    ROWS, STEPS = (HEADS, 1) if together else (1, HEADS)
    COUNT = BLOCKS * ITEMS

    @pl.jit
    def rope_heads(
        q: pl.Tensor[[COUNT * HEADS, DIM], pl.FP32],
        cos: pl.Tensor[[COUNT, DIM], pl.FP32],
        sin: pl.Tensor[[COUNT, DIM], pl.FP32],
        out: pl.Out[pl.Tensor[[COUNT * HEADS, DIM], pl.BF16]],
    ):
        for block in pl.spmd(BLOCKS, name_hint="rope"):
            for i in pl.range(ITEMS):
                item = block * ITEMS + i
                c = cos[item : item + 1, :]
                s = sin[item : item + 1, :]
                for step in pl.range(STEPS):
                    row = item * HEADS + step
                    x = q[row : row + ROWS, :]
                    low = x[:, 0:HALF]
                    high = x[:, HALF:DIM]
                    turned_low = pl.sub(pl.col_expand_mul(low, c[:, 0:HALF]), pl.col_expand_mul(high, s[:, 0:HALF]))
                    turned_high = pl.add(
                        pl.col_expand_mul(high, c[:, HALF:DIM]), pl.col_expand_mul(low, s[:, HALF:DIM])
                    )
                    out[row : row + ROWS, 0:HALF] = pl.cast(turned_low, target_type=pl.BF16)
                    out[row : row + ROWS, HALF:DIM] = pl.cast(turned_high, target_type=pl.BF16)
        return out

    return rope_heads


def main() -> None:
    parser = argparse.ArgumentParser(description="RoPE of five heads")
    parser.add_argument("--heads", choices=["apart", "together"], default="apart")
    fn = program(parser.parse_args().heads == "together")
    count = BLOCKS * ITEMS
    specs = [TensorSpec("q", [count * HEADS, DIM], pl.FP32)]
    specs += [TensorSpec(name, [count, DIM], pl.FP32) for name in ("cos", "sin")]
    specs.append(TensorSpec("out", [count * HEADS, DIM], pl.BF16, is_output=True))
    raise SystemExit(run_jit(fn=fn, specs=specs).error)


if __name__ == "__main__":
    main()
