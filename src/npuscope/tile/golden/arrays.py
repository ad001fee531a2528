"""The door between users' tensors and NumPy: everything inside the harness is a NumPy array.

torch is not a dependency and is never imported here. Where the user's script has imported it, its dtypes and tensors
are taken; a torch tensor and its array share memory, so that what a program writes is seen in both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeGuard, TypeVar, cast

import ml_dtypes
import numpy as np
import numpy.typing as npt

from npuscope.ops.dtypes import DataType, Element
from npuscope.ops.numeric.arrays import Array as Array  # what the harness works on

Dtype = np.dtype[Element]
BFLOAT16: Dtype = np.dtype(ml_dtypes.bfloat16)
NO_NUMBERS = "cOSUmM"  # NumPy's letters for complex, objects, text and dates


class TorchTensor(Protocol):
    """What is used of a torch tensor."""

    @property
    def dtype(self) -> object: ...
    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def ndim(self) -> int: ...
    def detach(self) -> TorchTensor: ...
    def cpu(self) -> TorchTensor: ...
    def contiguous(self) -> TorchTensor: ...
    def clone(self) -> TorchTensor: ...
    def numpy(self) -> Array: ...
    def view(self, dtype: object, /) -> TorchTensor: ...
    def to(self, dtype: object, /) -> TorchTensor: ...
    def is_complex(self) -> bool: ...


class Torch(Protocol):
    """What is used of torch."""

    dtype: type
    Tensor: type
    bfloat16: object
    int16: object

    def from_numpy(self, array: Array, /) -> TorchTensor: ...
    def as_tensor(self, value: UserTensor, /) -> TorchTensor: ...
    def empty(self, size: int, /, *, dtype: object) -> TorchTensor: ...
    def zeros(self, shape: Sequence[int], /, *, dtype: object) -> TorchTensor: ...
    def ones(self, shape: Sequence[int], /, *, dtype: object) -> TorchTensor: ...
    def rand(self, shape: Sequence[int], /, *, dtype: object) -> TorchTensor: ...
    def randn(self, shape: Sequence[int], /, *, dtype: object) -> TorchTensor: ...
    def save(self, value: TorchTensor, path: Path, /) -> None: ...
    def load(self, path: Path, /, *, weights_only: bool) -> object: ...
    def manual_seed(self, seed: int, /) -> object: ...
    def initial_seed(self) -> int: ...


UserTensor = Array | TorchTensor
Kind = TypeVar("Kind")


def torch_module() -> Torch | None:
    """torch if the script imported it, else None."""
    return cast("Torch | None", sys.modules.get("torch"))


def the_torch() -> Torch:
    """torch, where something of it is at hand."""
    torch = torch_module()
    assert torch is not None
    return torch


def is_torch_dtype(dtype: object) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(dtype, torch.dtype)


def is_torch_tensor(value: object) -> TypeGuard[TorchTensor]:
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


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
    torch = the_torch()
    tensor = value.detach().cpu()
    if tensor.dtype is torch.bfloat16:
        return np.asarray(tensor.contiguous().view(torch.int16).numpy()).view(BFLOAT16)
    return np.asarray(tensor.numpy())


def tensor_of(array: Array, dtype: object) -> UserTensor:
    """An array as the kind of tensor that `dtype` belongs to, in that dtype."""
    array = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray alone makes a 0-d array 1-d
    if not is_torch_dtype(dtype):
        return array.astype(storage_of(dtype), copy=False)
    torch = the_torch()
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16).to(dtype)
    return torch.from_numpy(array).to(dtype)


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
