"""The door between users' tensors and NumPy: everything inside the harness is a NumPy array.

Where the user's script has imported torch, its dtypes and tensors are taken; a torch tensor and its array share memory,
so that what a program writes is seen in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar, cast

import numpy as np
import numpy.typing as npt

from npuscope.ops.dtypes import DataType, Element
from npuscope.ops.numeric.arrays import Array as Array  # what the harness works on
from npuscope.tile.values.user_torch import (
    BFLOAT16,
    TorchTensor,
    is_torch_dtype,
    is_torch_tensor,
    the_torch,
    to_numpy,
    to_torch,
)

Dtype = np.dtype[Element]
NO_NUMBERS = "cOSUmM"  # NumPy's letters for complex, objects, text and dates


UserTensor = Array | TorchTensor
Kind = TypeVar("Kind")


def storage_of(dtype: object) -> Dtype:
    """The NumPy dtype of a torch dtype, a tile type (`pl.BF16`) or what NumPy takes; TypeError where there is none."""
    if is_torch_dtype(dtype):
        torch = the_torch()
        return BFLOAT16 if dtype is torch.bfloat16 else torch.empty(0, dtype=dtype).numpy().dtype
    if isinstance(dtype, DataType):
        if dtype.storage is None:
            raise TypeError(f"{dtype} has no values")
        return dtype.storage
    return cast(Dtype, np.dtype(cast(npt.DTypeLike, dtype)))


def array_of(value: object) -> Array:
    """A user's tensor as an array that shares its memory."""
    if not is_torch_tensor(value):
        return np.asarray(value)
    return to_numpy(value.detach().cpu())


def tensor_of(array: Array, dtype: object) -> UserTensor:
    """An array as the kind of tensor that `dtype` belongs to, in that dtype."""
    if is_torch_dtype(dtype):
        return to_torch(array).to(dtype)
    return np.ascontiguousarray(array).reshape(array.shape).astype(storage_of(dtype), copy=False)


def zeros(shape: Sequence[int], dtype: object) -> UserTensor:
    """Zeros of a user's dtype; memory is taken only where it is written."""
    if is_torch_dtype(dtype):
        return the_torch().zeros(list(shape), dtype=dtype)
    return np.zeros(tuple(shape), storage_of(dtype))


def copy_of(value: Kind) -> Kind:
    """A tensor of the same kind that shares nothing; other values as they are."""
    if is_torch_tensor(value):
        return cast(Kind, value.clone())
    return cast(Kind, value.copy()) if isinstance(value, np.ndarray) else value


def to_read(value: Kind) -> Kind:
    """A tensor for somebody who shall not change it: NumPy forbids it, of a torch tensor a copy is given."""
    if not isinstance(value, np.ndarray):
        return copy_of(value)
    view = value.view()
    view.flags.writeable = False
    return cast(Kind, view)


def fp32(value: object) -> npt.NDArray[np.float32]:
    """A tensor's values as the comparators see them."""
    return array_of(value).astype(np.float32, copy=False)


def is_float(array: Array) -> bool:
    """Whether an array holds floats, bf16 included (which NumPy does not count)."""
    return np.issubdtype(array.dtype, np.floating) or array.dtype == BFLOAT16


def holds_numbers(value: object) -> bool:
    """Whether a value is real numbers, or lists of them."""
    if is_torch_tensor(value):
        return not value.is_complex()
    try:
        return array_of(value).dtype.kind not in NO_NUMBERS
    except ValueError:  # lists of different lengths
        return False
