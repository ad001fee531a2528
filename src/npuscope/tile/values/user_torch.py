"""torch, as far as it is used here: never imported, taken where the user's script has imported it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeGuard, cast

import ml_dtypes
import numpy as np

from npuscope.ops.dtypes import Element
from npuscope.ops.numeric.arrays import Array

BFLOAT16: np.dtype[Element] = np.dtype(ml_dtypes.bfloat16)


class TorchTensor(Protocol):
    """What is used of a torch tensor."""

    @property
    def dtype(self) -> object: ...
    @property
    def shape(self) -> Sequence[int]: ...
    @property
    def ndim(self) -> int: ...
    @property
    def layout(self) -> object: ...
    @property
    def device(self) -> object: ...
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
    def as_tensor(self, value: Array | TorchTensor, /) -> TorchTensor: ...
    def empty(self, size: int, /, *, dtype: object) -> TorchTensor: ...
    def zeros(self, shape: Sequence[int], /, *, dtype: object) -> TorchTensor: ...
    def ones(self, shape: Sequence[int], /, *, dtype: object) -> TorchTensor: ...
    def rand(self, shape: Sequence[int], /, *, dtype: object) -> TorchTensor: ...
    def randn(self, shape: Sequence[int], /, *, dtype: object) -> TorchTensor: ...
    def save(self, value: TorchTensor, path: Path, /) -> None: ...
    def load(self, path: Path, /, *, weights_only: bool) -> object: ...
    def manual_seed(self, seed: int, /) -> object: ...
    def initial_seed(self) -> int: ...


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


def to_torch(array: Array) -> TorchTensor:
    """An array as a tensor of the same memory, where that lies side by side."""
    torch = the_torch()
    array = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray alone makes a 0-d array 1-d
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(tensor: TorchTensor) -> Array:
    """A dense tensor on the CPU as an array of the same memory; TypeError or RuntimeError for others."""
    torch, tensor = the_torch(), tensor.detach()
    if tensor.dtype is torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy()).view(BFLOAT16)
    return np.asarray(tensor.numpy())
