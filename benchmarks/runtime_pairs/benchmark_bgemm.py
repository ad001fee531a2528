"""Products of tiles, added up along K by tasks of their own: chains of sums, products free.

Tasks, tiles and arguments are those of simpler's example benchmark_bgemm (Case0: 500 products and 500 sums of four
tiles, two steps along K, a scope for each group); the program is our own, in the tile language.
"""

import argparse

import numpy as np

import npuscope.tile as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

CASES = {  # products, tile, tiles in a task, steps along K
    "Case0": (500, 128, 4, 2),
    "Case1": (64, 128, 4, 2),
    "Case2": (256, 128, 4, 2),
    "Case3": (64, 128, 16, 2),
    "Case4": (64, 128, 4, 4),
    "Bgemm64": (32, 64, 1, 4),
}
ROWS = pl.dynamic("ROWS")
OUTS = pl.dynamic("OUTS")
SOME = pl.dynamic("SOME")


def program(tile: int, tiles: int, steps: int):
    """The entry for square tiles, so many in a task, and steps along K."""
    rows = tiles * tile

    @pl.jit.incore
    def gemm(
        a: pl.Tensor[[SOME, tile], pl.FP32],
        b: pl.Tensor[[SOME, tile], pl.FP32],
        config: pl.Tensor[[4], pl.INT32],
        product: pl.Out[pl.Tensor[[SOME, tile], pl.FP32]],
    ):
        for row in pl.range(0, pl.cast(pl.read(config, [3]), pl.INDEX) * tile, tile):
            a_l1 = pl.load(a, [row, 0], [tile, tile], target_memory=pl.MemorySpace.Mat)
            b_l1 = pl.load(b, [row, 0], [tile, tile], target_memory=pl.MemorySpace.Mat)
            a_l0 = pl.move(a_l1, target_memory=pl.MemorySpace.Left)
            b_l0 = pl.move(b_l1, target_memory=pl.MemorySpace.Right)
            product = pl.store(pl.matmul(a_l0, b_l0), [row, 0], product)
        return product

    @pl.jit.incore
    def tile_add(
        c: pl.InOut[pl.Tensor[[SOME, tile], pl.FP32]],
        product: pl.Tensor[[SOME, tile], pl.FP32],
        config: pl.Tensor[[4], pl.INT32],
    ):
        for row in pl.range(0, pl.cast(pl.read(config, [3]), pl.INDEX) * tile, tile):
            both = pl.add(pl.load(c, [row, 0], [tile, tile]), pl.load(product, [row, 0], [tile, tile]))
            c = pl.store(both, [row, 0], c)
        return c

    @pl.jit
    def bgemm(
        a: pl.Tensor[[ROWS, tile], pl.FP32],
        b: pl.Tensor[[ROWS, tile], pl.FP32],
        c: pl.InOut[pl.Tensor[[OUTS, tile], pl.FP32]],
        config: pl.Tensor[[4], pl.INT32],
    ):
        for group in pl.range(pl.tensor.dim(c, 0) // rows):
            result = pl.slice(c, [rows, tile], [group * rows, 0])
            for k in pl.range(steps):
                at = (group * steps + k) * rows
                product = pl.create_tensor([rows, tile], dtype=pl.FP32)
                product = gemm(pl.slice(a, [rows, tile], [at, 0]), pl.slice(b, [rows, tile], [at, 0]), config, product)
                result = tile_add(result, product, config)
        return c

    return bgemm


def run(case: str = "Case0") -> RunResult:
    products, tile, tiles, steps = CASES[case]
    groups = products // steps
    shape, out = [products * tiles * tile, tile], [groups * tiles * tile, tile]

    def golden(tensors: dict) -> None:
        a, b = (tensors[name].reshape(groups, steps, tiles, tile, tile) for name in "ab")
        tensors["c"][:] = (a @ b).sum(axis=1).reshape(out)

    specs = [
        TensorSpec("a", shape, pl.FP32, init_value=lambda rng: rng.normal(size=shape) * 0.01),
        TensorSpec("b", shape, pl.FP32, init_value=lambda rng: rng.normal(size=shape) * 0.01),
        TensorSpec("c", out, pl.FP32, is_output=True, init_value=lambda: np.zeros(out)),
        TensorSpec("config", [4], pl.INT32, init_value=lambda: np.array([tile, steps, groups, tiles])),
    ]
    return run_jit(fn=program(tile, tiles, steps), specs=specs, golden_fn=golden, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, default="Case0")
    raise SystemExit(run(parser.parse_args().case).error)
