"""An MX-quantised SwiGLU MLP for a5 (Ascend 950): FP8 weights and activations with a power of two for each group of 32.

Weights come as FP8 with their scales; activations are quantised on the vector cores, tile by tile, just before the cube
multiplies them (`pl.quant_mx`, `pl.matmul_mx`), so that nothing of FP8 is ever written to global memory. Half of the
bytes of BF16 weights, and the story of a decode step: which of the two is the longer one, loading or quantising?
`npuscope simulate model:mx_mlp --device ascend950dt`. What an MX product costs is not public: it is priced as one of
BF16 operands of the same bytes.
"""

import numpy as np

import npuscope.tile as pl  # with PyPTO installed: import pypto.language as pl
from npuscope.tile.golden import RunResult, TensorSpec, run_jit

TOKENS, HIDDEN, INNER = 32, 512, 1024
COLUMNS, DEEP, GROUP = 128, 256, 32
FP8 = pl.FP8E4M3FN.storage


@pl.jit.inline
def mx_product(acc, x, w, scales, k, n):
    """acc + x · w of a piece of K, the activations quantised on the way."""
    values, exponents = pl.quant_mx(x[:, k : k + DEEP], group_axis=1)
    weights = w[k : k + DEEP, n : n + COLUMNS]
    powers = scales[k // GROUP : (k + DEEP) // GROUP, n : n + COLUMNS]
    return pl.matmul_mx_acc(acc, values, exponents, weights, powers)


@pl.jit.inline
def first_product(x, w, scales, n):
    values, exponents = pl.quant_mx(x[:, 0:DEEP], group_axis=1)
    return pl.matmul_mx(values, exponents, w[0:DEEP, n : n + COLUMNS], scales[0 : DEEP // GROUP, n : n + COLUMNS])


@pl.jit
def mx_mlp(
    x: pl.Tensor[[TOKENS, HIDDEN], pl.BF16],
    gate: pl.Tensor[[HIDDEN, INNER], pl.FP8E4M3FN],
    gate_scale: pl.Tensor[[HIDDEN // GROUP, INNER], pl.FP8E8M0],
    up: pl.Tensor[[HIDDEN, INNER], pl.FP8E4M3FN],
    up_scale: pl.Tensor[[HIDDEN // GROUP, INNER], pl.FP8E8M0],
    down: pl.Tensor[[INNER, HIDDEN], pl.FP8E4M3FN],
    down_scale: pl.Tensor[[INNER // GROUP, HIDDEN], pl.FP8E8M0],
    y: pl.Out[pl.Tensor[[TOKENS, HIDDEN], pl.FP32]],
):
    hidden = pl.create_tensor([TOKENS, INNER], dtype=pl.BF16)
    for block in pl.spmd(INNER // COLUMNS, name_hint="gate_up"):
        n = block * COLUMNS
        g, u = first_product(x, gate, gate_scale, n), first_product(x, up, up_scale, n)
        for k in pl.pipeline(DEEP, HIDDEN, DEEP, stage=2):
            g, u = mx_product(g, x, gate, gate_scale, k, n), mx_product(u, x, up, up_scale, k, n)
        silu = pl.mul(g, pl.recip(pl.add(pl.exp(pl.neg(g)), 1.0)))
        hidden[:, n : n + COLUMNS] = pl.cast(pl.mul(silu, u), pl.BF16, mode="rint")
    for block in pl.spmd(HIDDEN // COLUMNS, name_hint="down"):
        n = block * COLUMNS
        acc = first_product(hidden, down, down_scale, n)
        for k in pl.pipeline(DEEP, INNER, DEEP, stage=2):
            acc = mx_product(acc, hidden, down, down_scale, k, n)
        y = pl.assemble(y, acc, [0, n])
    return y


# --- the reference: the rule of OCP's MX formats, along K


def quantised(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A matrix [K, N] as FP8 values and a power of two for each 32 rows of a column."""
    groups = matrix.reshape(-1, GROUP, matrix.shape[1])
    largest = np.abs(groups).max(axis=1, keepdims=True)
    power = np.exp2(np.floor(np.log2(np.maximum(largest, 2.0**-100))) - 8)
    values = np.clip(groups / power, -448, 448).reshape(matrix.shape).astype(FP8)
    return values, power[:, 0].astype(pl.FP8E8M0.storage)


def dequantised(values: np.ndarray, scales: np.ndarray) -> np.ndarray:
    return values.astype(np.float32) * np.repeat(scales.astype(np.float32), GROUP, axis=0)


def mx(x: np.ndarray) -> np.ndarray:
    """Activations as the cube sees them."""
    return dequantised(*quantised(x.astype(np.float32).T)).T


def golden(tensors: dict) -> None:
    weights = {n: dequantised(tensors[n], tensors[f"{n}_scale"]) for n in ("gate", "up", "down")}
    x = mx(tensors["x"])
    g, u = x @ weights["gate"], x @ weights["up"]
    hidden = (g / (1 + np.exp(-g)) * u).astype(pl.BF16.storage)
    tensors["y"][:] = mx(hidden) @ weights["down"]


def run() -> RunResult:
    rng = np.random.default_rng(7)
    specs = [TensorSpec("x", [TOKENS, HIDDEN], pl.BF16, init_value=lambda rng: rng.normal(size=(TOKENS, HIDDEN)))]
    for name, shape in (("gate", (HIDDEN, INNER)), ("up", (HIDDEN, INNER)), ("down", (INNER, HIDDEN))):
        values, scales = quantised(rng.normal(0, shape[0] ** -0.5, shape).astype(np.float32))
        specs.append(TensorSpec(name, list(shape), pl.FP8E4M3FN, init_value=values))
        specs.append(TensorSpec(f"{name}_scale", list(scales.shape), pl.FP8E8M0, init_value=scales))
    specs.append(TensorSpec("y", [TOKENS, HIDDEN], pl.FP32, is_output=True))
    # sums in another order may round a hidden value to the next BF16, and that to the next FP8, a sixteenth away
    return run_jit(fn=mx_mlp, specs=specs, golden_fn=golden, rtol=2e-2, atol=2e-2, runtime_cfg={"platform": "a5"})


if __name__ == "__main__":
    raise SystemExit(run().error)  # None: exit code 0; else the mismatches are printed, exit code 1
