"""Matrix products and sums of 128 x 128 tiles, submitted in turn: no task needs another.

Tasks, tiles and arguments are those of simpler's scene test alternating_matmul_add (Case1: 500 + 500 tasks of four
tiles; Case2: 256 tasks of four products, 512 of five sums); the program is our own, in the tile language.
"""

import argparse

import npuscope.tile as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

TILE = 128
CASES = {"Case1": (500, 4, 4, 4, 4), "Case2": (512, 2, 5, 4, 5)}  # batch, products, sums, of each in a task
PRODUCTS = pl.dynamic("PRODUCTS")
SUMS = pl.dynamic("SUMS")
SOME = pl.dynamic("SOME")


@pl.jit.incore
def matmul(
    a: pl.Tensor[[SOME, TILE], pl.FP32],
    b: pl.Tensor[[SOME, TILE], pl.FP32],
    c: pl.Out[pl.Tensor[[SOME, TILE], pl.FP32]],
):
    for row in pl.range(0, pl.tensor.dim(a, 0), TILE):
        a_l1 = pl.load(a, [row, 0], [TILE, TILE], target_memory=pl.MemorySpace.Mat)
        b_l1 = pl.load(b, [row, 0], [TILE, TILE], target_memory=pl.MemorySpace.Mat)
        a_l0 = pl.move(a_l1, target_memory=pl.MemorySpace.Left)
        b_l0 = pl.move(b_l1, target_memory=pl.MemorySpace.Right)
        c = pl.store(pl.matmul(a_l0, b_l0), [row, 0], c)
    return c


@pl.jit.incore
def add(
    x: pl.Tensor[[SOME, TILE], pl.FP32],
    y: pl.Tensor[[SOME, TILE], pl.FP32],
    z: pl.Out[pl.Tensor[[SOME, TILE], pl.FP32]],
):
    for row in pl.range(0, pl.tensor.dim(x, 0), TILE):
        z = pl.store(pl.add(pl.load(x, [row, 0], [TILE, TILE]), pl.load(y, [row, 0], [TILE, TILE])), [row, 0], z)
    return z


def program(products: int, sums: int):
    """The entry for tasks of so many products and so many sums."""

    @pl.jit
    def alternating(
        a: pl.Tensor[[PRODUCTS, TILE], pl.FP32],
        b: pl.Tensor[[PRODUCTS, TILE], pl.FP32],
        c: pl.Out[pl.Tensor[[PRODUCTS, TILE], pl.FP32]],
        x: pl.Tensor[[SUMS, TILE], pl.FP32],
        y: pl.Tensor[[SUMS, TILE], pl.FP32],
        z: pl.Out[pl.Tensor[[SUMS, TILE], pl.FP32]],
    ):
        matmuls = pl.tensor.dim(a, 0) // (products * TILE)
        adds = pl.tensor.dim(x, 0) // (sums * TILE)
        for n in pl.range(pl.max(matmuls, adds)):
            if n < matmuls:
                at, rows = n * products * TILE, products * TILE
                matmul(pl.slice(a, [rows, TILE], [at, 0]), pl.slice(b, [rows, TILE], [at, 0]),
                       pl.slice(c, [rows, TILE], [at, 0]))  # fmt: skip
            if n < adds:
                at, rows = n * sums * TILE, sums * TILE
                add(pl.slice(x, [rows, TILE], [at, 0]), pl.slice(y, [rows, TILE], [at, 0]),
                    pl.slice(z, [rows, TILE], [at, 0]))  # fmt: skip
        return c, z

    return alternating


def golden(tensors: dict) -> None:
    shape = (-1, TILE, TILE)
    tensors["c"][:] = (tensors["a"].reshape(shape) @ tensors["b"].reshape(shape)).reshape(-1, TILE)
    tensors["z"][:] = tensors["x"] + tensors["y"]


def run(case: str = "Case1") -> RunResult:
    batch, products, sums, in_matmul, in_add = CASES[case]
    rows = {name: batch * (products if name in "abc" else sums) * TILE for name in "abcxyz"}
    shapes = {name: [count, TILE] for name, count in rows.items()}

    def some(shape: list[int]):
        return lambda rng: rng.normal(size=shape) * 0.01

    specs = [
        TensorSpec(name, shape, pl.FP32, is_output=name in "cz", init_value=None if name in "cz" else some(shape))
        for name, shape in shapes.items()
    ]
    return run_jit(fn=program(in_matmul, in_add), specs=specs, golden_fn=golden, rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", choices=CASES, default="Case1")
    raise SystemExit(run(parser.parse_args().case).error)
