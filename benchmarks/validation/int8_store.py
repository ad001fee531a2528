"""The activation of a routed expert: SwiGLU of fp32 rows, quantised, stored as int8 in column tiles (#719).

The report names the tile of the store (256 or 512 bytes a row) and the times, not the sizes: here are 16 rows and 2048
columns a task, and 6 tasks, as many as are submitted in the 7 µs that lie between the first and the last start (a span
of 17.0 µs, of which a task takes 9.9).

    npuscope simulate benchmarks/validation/int8_store.py -- --tile 512
"""

import argparse

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

ROWS, COLUMNS, TASKS = 16, 2048, 6


def program(tile: int):
    @pl.jit
    def int8_store(
        gate: pl.Tensor[[TASKS * ROWS, COLUMNS], pl.FP32],
        up: pl.Tensor[[TASKS * ROWS, COLUMNS], pl.FP32],
        out: pl.Out[pl.Tensor[[TASKS * ROWS, COLUMNS], pl.INT8]],
    ):
        for task in pl.parallel(TASKS):
            row = task * ROWS
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="quantise"):
                for c in pl.pipeline(0, COLUMNS, tile, stage=2):
                    g = gate[row : row + ROWS, c : c + tile]
                    sigmoid = pl.recip(pl.add(pl.exp(pl.neg(g)), 1.0))
                    h = pl.mul(pl.mul(pl.mul(g, sigmoid), up[row : row + ROWS, c : c + tile]), 12.0)
                    q = pl.cast(pl.cast(h, target_type=pl.INT32, mode="rint"), target_type=pl.FP16)
                    out[row : row + ROWS, c : c + tile] = pl.cast(q, target_type=pl.INT8, mode="trunc")
        return out

    return int8_store


def main() -> None:
    parser = argparse.ArgumentParser(description="SwiGLU and quantisation")
    parser.add_argument("--tile", type=int, default=256, help="columns of one store, a byte each")
    tile = parser.parse_args().tile
    shape = [TASKS * ROWS, COLUMNS]
    specs = [TensorSpec(name, shape, pl.FP32) for name in ("gate", "up")]
    specs.append(TensorSpec("out", shape, pl.INT8, is_output=True))
    raise SystemExit(run_jit(fn=program(tile), specs=specs).error)


if __name__ == "__main__":
    main()
