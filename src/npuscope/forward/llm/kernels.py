"""Kernels that several parts of a model share, as vLLM-Ascend calls them: matmuls, norms, collectives.

Shapes, data types and formats are as the profiler lists them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from npuscope.forward.calls import Call, Tensor
from npuscope.forward.llm.run import Run

# gate_up and down of 768 rows ran as MatMulV2, of 3,072 rows as MatMulV3 (measured_kernels_by_shape.csv); where
# between them the kernel changes is not known
V3_ROWS = 1024


@dataclass(frozen=True)
class Kernel:
    """A kernel call and what it is for; `weights` counts the parameters that it reads on this rank."""

    role: str
    call: Call
    weights: int = 0


def tensor(*shape: int, dtype: str = "BF16", format: str = "ND") -> Tensor:
    return Tensor(shape, dtype, format)


def matmul(role: str, m: int, k: int, n: int, run: Run, *, large: bool = False, bias: bool = False) -> Kernel:
    """A projection with its weight stored as NZ; INT8 with W8A8. `large`: the kernel for many rows may take it."""
    out = tensor(m, n)
    weights, summand = (k + 1) * n if bias else k * n, (tensor(n),) if bias else ()
    if run.quant == "w8a8":
        weight = tensor(ceil(n / 32), ceil(k / 16), 16, 32, dtype="INT8", format="FRACTAL_NZ")
        inputs = (tensor(m, k, dtype="INT8"), weight, tensor(n, dtype="FLOAT"), *summand)
        return Kernel(role, Call("QuantBatchMatmulV3", inputs, (out,)), weights)
    weight = tensor(ceil(k / 16), ceil(n / 16), 16, 16, format="FRACTAL_NZ")
    kind = "MatMulV3" if large and m >= V3_ROWS else "MatMulV2"
    return Kernel(role, Call(kind, (tensor(m, k), weight, *summand), (out,)), weights)


def plain_matmul(role: str, m: int, k: int, n: int) -> Kernel:
    """BF16 whatever the quantisation, its weight stored row by row: LM head, router, indexer."""
    return Kernel(role, Call("MatMulV2", (tensor(m, k), tensor(n, k)), (tensor(m, n),)), k * n)


def quantise(role: str, m: int, k: int, run: Run, *, dynamic: bool = False) -> list[Kernel]:
    """Before a quantised matmul: with scales of the checkpoint, or of each row. Nothing without quantisation."""
    if run.quant != "w8a8":
        return []
    out = tensor(m, k, dtype="INT8")
    if dynamic:
        return [Kernel(role, Call("DynamicQuant", (tensor(m, k),), (out, tensor(m, dtype="FLOAT"))))]
    return [Kernel(role, Call("AscendQuantV2", (tensor(m, k), tensor(k), tensor(k)), (out,)))]


def add_norm(role: str, m: int, width: int) -> Kernel:
    """Residual and norm in one."""
    x = tensor(m, width)
    outputs = (x, tensor(m, 1, dtype="FLOAT"), x)
    return Kernel(role, Call("AddRmsNormBias", (x, x, tensor(width), None), outputs), width)


def norm(role: str, *shape: int) -> Kernel:
    x, rstd = tensor(*shape), tensor(*shape[:-1], 1, dtype="FLOAT")
    return Kernel(role, Call("RmsNorm", (x, tensor(shape[-1])), (x, rstd)), shape[-1])


def swiglu(m: int, width: int) -> Kernel:
    """`width` is gate and up together."""
    return Kernel("swiglu", Call("SwiGlu", (tensor(m, width),), (tensor(m, width // 2),)))


def collective(role: str, kind: str, ranks: int, *shape: int) -> list[Kernel]:
    """`shape` is the BF16 buffer that each rank gives. One rank alone needs none."""
    if ranks == 1:
        return []
    given = {"bytes": 2.0 * prod(shape), "ranks": float(ranks)}
    return [Kernel(role, Call(f"hcom_{kind}_", (tensor(*shape),), (), given))]


def over_sequence(run: Run, model_has_latent: bool) -> bool:
    """True where norms run on a rank's share of the tokens: prefill, and any phase of latent attention."""
    return run.tp > 1 and (run.phase == "prefill" or model_has_latent)
