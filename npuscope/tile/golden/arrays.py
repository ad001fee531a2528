"""The door between users' tensors and NumPy: everything inside the harness is a NumPy array.

torch is not a dependency and is never imported here. Where the user's script has imported it, its dtypes and tensors
are taken; a torch tensor and its array share memory, so that what a program writes is seen in both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from npuscope.ops.dtypes import DataType

Array = npt.NDArray[Any]
Dtype = np.dtype[Any]
BFLOAT16: Dtype = np.dtype(ml_dtypes.bfloat16)
NO_NUMBERS = "cOSUmM"  # NumPy's letters for complex, objects, text and dates


def torch_module() -> Any:
    """torch if the script imported it, else None."""
    return sys.modules.get("torch")


def is_torch_dtype(dtype: Any) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(dtype, torch.dtype)


def is_torch_tensor(value: Any) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


def storage_of(dtype: Any) -> Dtype:
    """The NumPy dtype of a torch dtype, a tile type (`pl.BF16`) or what NumPy takes; TypeError where there is none."""
    if is_torch_dtype(dtype):
        torch = torch_module()
        return BFLOAT16 if dtype is torch.bfloat16 else torch.empty(0, dtype=dtype).numpy().dtype
    if isinstance(dtype, DataType):
        if dtype.storage is None:
            raise TypeError(f"{dtype} has no values")
        return dtype.storage
    plain: Dtype = np.dtype(dtype)
    return plain


def array_of(value: Any) -> Array:
    """A user's tensor as an array that shares its memory."""
    if not is_torch_tensor(value):
        return np.asarray(value)
    torch = torch_module()
    value = value.detach().cpu()
    if value.dtype is torch.bfloat16:
        return np.asarray(value.contiguous().view(torch.int16).numpy()).view(BFLOAT16)
    return np.asarray(value.numpy())


def tensor_of(array: Array, dtype: Any) -> Any:
    """An array as the kind of tensor that `dtype` belongs to, in that dtype."""
    array = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray alone makes a 0-d array 1-d
    if not is_torch_dtype(dtype):
        return array.astype(storage_of(dtype), copy=False)
    torch = torch_module()
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(dtype)
    return torch.from_numpy(array).to(dtype)


def zeros(shape: Sequence[int], dtype: Any) -> Any:
    """Zeros of a user's dtype; memory is taken only where it is written."""
    if is_torch_dtype(dtype):
        return torch_module().zeros(list(shape), dtype=dtype)
    return np.zeros(tuple(shape), storage_of(dtype))


def copy_of(value: Any) -> Any:
    """A tensor of the same kind that shares nothing; other values as they are."""
    if is_torch_tensor(value):
        return value.clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def to_read(value: Any) -> Any:
    """A tensor for somebody who shall not change it: NumPy forbids it, of a torch tensor a copy is given."""
    if not isinstance(value, np.ndarray):
        return copy_of(value)
    view = value.view()
    view.flags.writeable = False
    return view


def fp32(value: Any) -> npt.NDArray[np.float32]:
    """A tensor's values as the comparators see them."""
    return array_of(value).astype(np.float32, copy=False)


def is_float(array: Array) -> bool:
    """Whether an array holds floats, bf16 included (which NumPy does not count)."""
    return np.issubdtype(array.dtype, np.floating) or array.dtype == BFLOAT16


def holds_numbers(value: Any) -> bool:
    """Whether a value is real numbers, or lists of them."""
    if is_torch_tensor(value):
        return not value.is_complex()
    try:
        return array_of(value).dtype.kind not in NO_NUMBERS
    except ValueError:  # lists of different lengths
        return False
