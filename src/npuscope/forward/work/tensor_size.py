"""Elements and bytes of tensors, their logical shapes behind storage formats, and the names of data types."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from npuscope.explain.work import BITS, MOST
from npuscope.forward.calls import Tensor
from npuscope.forward.work.amount import NotPriced

DTYPES = {
    "BF16": "bf16", "BFLOAT16": "bf16", "FLOAT16": "fp16", "FLOAT": "fp32", "FLOAT32": "fp32", "DOUBLE": "fp64",
    "INT8": "int8", "UINT8": "int8", "INT4": "int4", "FLOAT8_E4M3FN": "fp8", "FLOAT8_E5M2": "fp8", "HIFLOAT8": "fp8",
}  # fmt: skip


def present(tensors: Iterable[Tensor | None]) -> list[Tensor]:
    """The tensors that are there: a slot without a shape is an absent input or a scalar."""
    return [tensor for tensor in tensors if tensor is not None and tensor.shape]


def elements(tensor: Tensor) -> int:
    if any(n < 0 for n in tensor.shape):
        raise NotPriced("a shape has a dimension that is not known")
    return prod(tensor.shape)


def size(tensor: Tensor, dtype: str | None = None) -> int:
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


def is_nz(tensor: Tensor) -> bool:
    """True for FRACTAL_NZ, by its format or, where that is not told, by its shape […, 16, 8 to 64]."""
    if len(tensor.shape) < 4:
        return False
    if tensor.format is not None and "NZ" in tensor.format:
        return True
    told = tensor.format is not None and tensor.format not in ("ND", "")
    return not told and tensor.shape[-2] == 16 and tensor.shape[-1] in (8, 16, 32, 64)


def logical(tensor: Tensor) -> tuple[int, ...]:
    """The shape as mathematics has it: NZ storage […, c1, r1, 16, c0] is […, r1·16, c1·c0]."""
    if not is_nz(tensor):
        return tensor.shape
    *batch, c1, r1, r0, c0 = tensor.shape
    return (*batch, r1 * r0, c1 * c0)
