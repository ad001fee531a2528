"""A kernel call: its type and the tensors it was called with, from a trace's row or from a model's config alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from math import prod

from npuscope.base.frozen import dataclass
from npuscope.explain.work import BITS, MOST


@dataclass(frozen=True)
class CallTensor:
    """A tensor as kernel tables describe it; dtype and format are null where the table does not tell."""

    shape: tuple[int, ...]
    dtype: str | None = "BF16"  # names of npuscope.explain.work.BITS
    format: str | None = "ND"


@dataclass(frozen=True)
class Call:
    """One kernel call. An absent input is None, as in the empty slots of a table.

    `given` holds what shapes cannot tell: `context` (cached tokens per sequence), `ranks` (of a
    collective), `bytes` (a collective's message per rank), `tokens_per_expert`, `causal`
    (1: no token sees a later one).
    """

    type: str  # as the profiler lists it: MatMulV2, FusedInferAttentionScore, hcom_allReduce_
    inputs: tuple[CallTensor | None, ...] = ()
    outputs: tuple[CallTensor | None, ...] = ()
    given: Mapping[str, float] = field(default_factory=dict, hash=False)


DTYPES = {
    "BF16": "bf16", "BFLOAT16": "bf16", "FLOAT16": "fp16", "FLOAT": "fp32", "FLOAT32": "fp32", "DOUBLE": "fp64",
    "INT8": "int8", "UINT8": "int8", "INT4": "int4", "FLOAT8_E4M3FN": "fp8", "FLOAT8_E5M2": "fp8", "HIFLOAT8": "fp8",
}  # fmt: skip


class NotPriced(Exception):
    """Why a call has no price; caught by `work_of`, which makes it an unknown row."""


def present(tensors: Iterable[CallTensor | None]) -> list[CallTensor]:
    """The tensors that are there: a slot without a shape is an absent input or a scalar."""
    return [tensor for tensor in tensors if tensor is not None and tensor.shape]


def elements(tensor: CallTensor) -> int:
    if any(n < 0 for n in tensor.shape):
        raise NotPriced("a shape has a dimension that is not known")
    return prod(tensor.shape)


def size(tensor: CallTensor, dtype: str | None = None) -> int:
    """Bytes of a tensor; `dtype` stands in where its own is not told."""
    total = elements(tensor) * bits(tensor.dtype or dtype) // 8
    if total > MOST:
        raise NotPriced("a shape is broken: a tensor of more than a pebibyte")
    return total


def bits(dtype: str | None) -> int:
    """Bits of one element."""
    if dtype is None or dtype not in BITS:
        raise NotPriced("a data type is not recorded" if dtype is None else f"data type {dtype} is not known")
    return BITS[dtype]


def rates_as(dtype: str | None) -> str | None:
    """A device's name of a data type."""
    return None if dtype is None else DTYPES.get(dtype)


def is_nz(tensor: CallTensor) -> bool:
    """True for FRACTAL_NZ, by its format or, where that is not told, by its shape […, 16, 8 to 64]."""
    if len(tensor.shape) < 4:
        return False
    if tensor.format is not None and "NZ" in tensor.format:
        return True
    is_other = tensor.format is not None and tensor.format not in ("ND", "")
    return not is_other and tensor.shape[-2] == 16 and tensor.shape[-1] in (8, 16, 32, 64)


def logical(tensor: CallTensor) -> tuple[int, ...]:
    """The shape as mathematics has it: NZ storage […, c1, r1, 16, c0] is […, r1·16, c1·c0]."""
    if not is_nz(tensor):
        return tensor.shape
    *batch, c1, r1, r0, c0 = tensor.shape
    return (*batch, r1 * r0, c1 * c0)
