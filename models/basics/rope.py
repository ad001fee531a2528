"""Rotary position embedding: each head's vector turns by angles that depend on its token's position.

    y_lo = x_lo * cos - x_hi * sin        y_hi = x_hi * cos + x_lo * sin

`for i in pl.spmd(n)` is one task of n blocks, the third way to say "at once": the scheduler sees one task, not n.
Each block takes one token, reads its position (a *scalar*, which then picks the row of the tables) and turns the 8
heads. A head is loaded and stored whole, 512 bytes, which is a line of global memory; its halves are cut on chip.
"""

import numpy as np

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

TOKENS, HEADS, HEAD_DIM = 16, 8, 128
MAX_POSITION = 1024
HALF = HEAD_DIM // 2
ROWS = TOKENS * HEADS


@pl.jit
def rope(
    x: pl.Tensor[[ROWS, HEAD_DIM], pl.FP32],
    positions: pl.Tensor[[TOKENS], pl.INT32],
    cos: pl.Tensor[[MAX_POSITION, HALF], pl.FP32],
    sin: pl.Tensor[[MAX_POSITION, HALF], pl.FP32],
    y: pl.Out[pl.Tensor[[ROWS, HEAD_DIM], pl.FP32]],
):
    for token in pl.spmd(TOKENS, name_hint="rope"):
        position = pl.cast(pl.read(positions, [token]), pl.INDEX)
        cos_row = cos[position : position + 1, :]
        sin_row = sin[position : position + 1, :]
        row = token * HEADS
        heads = x[row : row + HEADS, :]
        lo = heads[:, 0:HALF]
        hi = heads[:, HALF:HEAD_DIM]
        turned_lo = pl.sub(pl.col_expand_mul(lo, cos_row), pl.col_expand_mul(hi, sin_row))
        turned_hi = pl.add(pl.col_expand_mul(hi, cos_row), pl.col_expand_mul(lo, sin_row))
        y[row : row + HEADS, :] = pl.concat(turned_lo, turned_hi)
    return y


def angles() -> np.ndarray:
    frequencies = 1.0e6 ** (-np.arange(HALF) / HALF)
    return np.arange(MAX_POSITION)[:, None] * frequencies[None, :]


def golden(tensors: dict) -> None:
    pairs = tensors["x"].reshape(TOKENS, HEADS, 2, HALF)
    turns = np.exp(1j * angles()[tensors["positions"]])[:, None, :]  # a rotation is a complex product
    turned = (pairs[:, :, 0] + 1j * pairs[:, :, 1]) * turns
    tensors["y"][:] = np.stack([turned.real, turned.imag], axis=2).reshape(ROWS, HEAD_DIM)


def run() -> RunResult:
    specs = [
        TensorSpec("x", [ROWS, HEAD_DIM], pl.FP32, init_value=lambda rng: rng.normal(size=(ROWS, HEAD_DIM))),
        TensorSpec("positions", [TOKENS], pl.INT32, init_value=lambda: np.arange(TOKENS) * 61 % MAX_POSITION),
        TensorSpec("cos", [MAX_POSITION, HALF], pl.FP32, init_value=lambda: np.cos(angles())),
        TensorSpec("sin", [MAX_POSITION, HALF], pl.FP32, init_value=lambda: np.sin(angles())),
        TensorSpec("y", [ROWS, HEAD_DIM], pl.FP32, is_output=True),
    ]
    # the golden turns in double precision; the program's tables and products are fp32
    return run_jit(fn=rope, specs=specs, golden_fn=golden, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    raise SystemExit(run().error)  # None: exit code 0; else the mismatches are printed, exit code 1
