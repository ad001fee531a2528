"""The door between the user's arrays and GM: NumPy arrays, torch tensors, placeholders."""

from __future__ import annotations

import inspect
import sys
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Protocol, TypeGuard, cast

import ml_dtypes
import numpy as np

from npuscope.ops.dtypes import Array, DataType, Element, of_storage
from npuscope.tile.fault import TileError, fault
from npuscope.tile.record.model import Direction
from npuscope.tile.run.state import Run
from npuscope.tile.values import signature as types
from npuscope.tile.values.checks import Scalar, dtype_of, fitting, is_number, shape_of, shown
from npuscope.tile.values.tensors import Tensor, contiguous

_NO_TENSORS = (str, bytes, list, tuple, dict, set, complex, np.generic)


@dataclass(frozen=True)
class Placeholder:
    """A tensor argument without values, for `shapes` mode."""

    shape: tuple[int, ...]
    dtype: DataType

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", shape_of(self.shape))
        dtype_of(self.dtype, "Placeholder")


@dataclass(frozen=True)
class Parameter:
    name: str
    annotation: object
    direction: Direction | None
    default: object = inspect.Parameter.empty

    def room(self) -> Array | None:
        """An array of the declared shape, where it is declared in full."""
        wanted = self.annotation
        if not isinstance(wanted, types.TensorType) or wanted.shape is None or wanted.dtype is None:
            return None
        extents = [int(n) for n in wanted.shape if not isinstance(n, types.DynVar)]
        if wanted.dtype.storage is None or len(extents) < len(wanted.shape):
            return None
        return np.zeros(extents, wanted.dtype.storage)

    @property
    def rows_at_run_time(self) -> bool:
        """Whether the outermost extent is a run-time dimension."""
        shape = self.annotation.shape if isinstance(self.annotation, types.TensorType) else None
        return shape is not None and len(shape) > 0 and isinstance(shape[0], types.DynVar)


class Elsewhere(ABC):
    """An argument that lives elsewhere and knows how to become a tensor of a run."""

    shape: tuple[int, ...]
    dtype: DataType

    @abstractmethod
    def enter(self, run: Run, parameter: Parameter) -> Tensor: ...


def parameters(function: FunctionType) -> tuple[Parameter, ...]:
    """The parameters of a tile function with their annotations evaluated where that is possible."""
    closure = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    local = {}
    for name, cell in closure.items():
        try:
            local[name] = cell.cell_contents
        except ValueError:
            continue
    try:
        hints = typing.get_type_hints(function, localns=local)
    except TileError:  # a shape or type that is none
        raise
    except Exception:  # an annotation that cannot be evaluated says nothing; Python itself would not have asked
        hints = {k: v for k, v in function.__annotations__.items() if not isinstance(v, str)}
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        annotation = hints.get(name)
        found.append(Parameter(name, types.bare(annotation), types.direction(annotation), parameter.default))
    return tuple(found)


def with_outputs(
    function: str, wanted: tuple[Parameter, ...], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a call from outside; its outputs may be left out, all of them: they are made and returned."""
    outputs = [p for p in wanted if p.direction == "Out"]
    required = [p for p in wanted if p.default is inspect.Parameter.empty]
    if not outputs or len(args) != len(required) - len(outputs) or kwargs:
        return by_name(function, wanted, args, kwargs)
    made = {p.name: p.room() for p in outputs}
    missing = [name for name, room in made.items() if room is None]
    if missing:
        raise fault(f"{function}() needs the argument {missing[0]}: its shape is not declared")
    return {**by_name(function, tuple(p for p in wanted if p.name not in made), args, kwargs), **made}


def by_name(
    function: str, wanted: tuple[Parameter, ...], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a call by parameter; each must be there, once, and no others."""
    names = [p.name for p in wanted]
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    if len(args) > len(names):
        raise fault(f"{function}() takes {len(names)} arguments ({', '.join(names)}), not {len(args)}")
    for name in kwargs:
        if name not in names:
            raise fault(f"{function}() has no parameter {name}", f"It has {', '.join(names)}.")
        if name in names[: len(args)]:
            raise fault(f"{function}() is given {name} twice, by place and by name")
    given = {**{p.name: p.default for p in wanted if p.default is not inspect.Parameter.empty}, **given}
    for name in names:
        if name not in given:
            raise fault(f"{function}() needs the argument {name}")
    for parameter in wanted:
        value = given[parameter.name]
        if not isinstance(parameter.annotation, types.TensorType) or value is parameter.default:
            continue
        if value is None or is_number(value) or isinstance(value, _NO_TENSORS):
            raise fault(f"{function}(): {parameter.name} is declared a tensor, the argument is {shown(value)}")
    return given


def _shared(tensor: TorchTensor) -> Array:
    try:
        return to_numpy(tensor)
    except (TypeError, RuntimeError):  # sparse, quantised, lazily negated, on another device, of a type NumPy has not
        what = f"{tensor.layout} {tensor.dtype} on {tensor.device}"
        raise fault(f"a torch tensor {what} shares no memory with NumPy", "Pass a dense tensor on the CPU.") from None


@dataclass(frozen=True)
class BoundArgument:
    """An argument in GM, and how to hand its values back where GM had to hold a copy."""

    value: object
    give_back: Callable[[], None] | None = None


def bind(run: Run, parameter: Parameter, value: object, dynamic: dict[types.DynVar, int], where: str) -> BoundArgument:
    """An argument of an entry function as the program sees it."""
    annotation = parameter.annotation
    if isinstance(value, Tensor):
        return BoundArgument(value)
    if isinstance(value, Elsewhere):
        _check(parameter, value.shape, value.dtype, dynamic, where)
        return BoundArgument(value.enter(run, parameter))
    if is_torch_tensor(value):
        array = _shared(value)
    elif isinstance(value, np.ndarray):
        if isinstance(value, np.ma.MaskedArray):
            raise fault(f"{where}: {parameter.name} is a masked array", "Fill it first: x.filled(0).")
        array = value
    elif isinstance(value, Placeholder):
        return BoundArgument(_placeholder(run, parameter, value, dynamic, where))
    elif is_number(value):
        return BoundArgument(_number(value, parameter, where))
    elif isinstance(annotation, types.ScalarType):
        raise fault(f"{where}: {parameter.name} is declared a scalar, the argument is {shown(value)}")
    else:
        return BoundArgument(value)
    if array.ndim == 0 or isinstance(annotation, types.ScalarType):
        if array.size != 1 or isinstance(annotation, types.TensorType):
            what = "a scalar" if isinstance(annotation, types.ScalarType) else "a tensor"
            raise fault(f"{where}: {parameter.name} is declared {what}, the argument has shape {list(array.shape)}")
        item = float(array.astype(np.float32).item()) if array.dtype == BFLOAT16 else array.item()
        if not is_number(item):
            raise fault(f"{where}: the argument {parameter.name} has the type {array.dtype}, which the chip has not")
        return BoundArgument(_number(item, parameter, where))
    dtype = of_storage(array.dtype)
    if dtype is None:
        raise fault(f"{where}: the argument {parameter.name} has the type {array.dtype}, which the chip has not")
    _check(parameter, array.shape, dtype, dynamic, where)
    if parameter.direction is not None and not array.flags.writeable:
        raise fault(f"{where}: {parameter.name} is declared pl.{parameter.direction}, the array is read-only")
    flat = (array if array.flags.c_contiguous else np.ascontiguousarray(array)).reshape(-1)
    copied = not np.shares_memory(flat, array) and array.size > 0
    keeps = run.computes or dtype.steers
    # Shapes mode may write to the whole numbers it keeps: into a copy, for nothing real is computed.
    data = flat if run.computes else flat.copy() if keeps else None
    tensor = _in_gm(run, parameter, array.shape, dtype, data, written=parameter.direction != "Out" or not run.computes)

    def give_back() -> None:
        array[...] = flat.reshape(array.shape)

    return BoundArgument(tensor, give_back if copied and run.computes and parameter.direction else None)


def _placeholder(
    run: Run, parameter: Parameter, value: Placeholder, dynamic: dict[types.DynVar, int], where: str
) -> Tensor:
    if run.computes:
        raise fault(f"{where}: the argument {parameter.name} is a placeholder", "Record it in shapes mode.")
    _check(parameter, value.shape, value.dtype, dynamic, where)
    return _in_gm(run, parameter, value.shape, value.dtype, None, written=True)


def _in_gm(
    run: Run, parameter: Parameter, shape: tuple[int, ...], dtype: DataType, data: Array | None, *, written: bool
) -> Tensor:
    direction = parameter.direction or "In"
    buffer = run.gm.add(parameter.name, shape, dtype, data, origin="parameter", direction=direction, written=written)
    buffer.rows_at_run_time = parameter.rows_at_run_time
    return Tensor(buffer, 0, shape, contiguous(shape))


def _number(value: Scalar, parameter: Parameter, where: str) -> Scalar:
    annotation = parameter.annotation
    dtype = annotation.dtype if isinstance(annotation, types.ScalarType) else None
    if dtype is not None:
        if not dtype.is_float and isinstance(value, float | np.floating):
            raise fault(f"{where}: {parameter.name} is declared {dtype}, the argument is {shown(value)}")
        number = fitting(value, dtype, f"{where}: {parameter.name}")
        return np.float32(number) if dtype.is_float else number
    if isinstance(value, bool | np.bool_):
        return int(value)
    if isinstance(value, float | np.floating):
        return np.float32(value)
    return int(value)


def _check(
    parameter: Parameter, shape: tuple[int, ...], dtype: DataType, dynamic: dict[types.DynVar, int], where: str
) -> None:
    """The annotation against the argument; a dynamic dimension takes the first extent it meets."""
    wanted = parameter.annotation
    if not isinstance(wanted, types.TensorType):
        return
    if wanted.dtype is not None and wanted.dtype is not dtype:
        raise fault(f"{where}: {parameter.name} is declared {wanted.dtype}, the argument is {dtype}")
    if wanted.shape is None:
        return
    if len(wanted.shape) != len(shape):
        declared = [getattr(n, "name", n) for n in wanted.shape]
        raise fault(f"{where}: {parameter.name} is declared {declared}, the argument has shape {list(shape)}")
    for axis, (want, have) in enumerate(zip(wanted.shape, shape, strict=True)):
        if isinstance(want, types.DynVar):
            want = dynamic.setdefault(want, have)
        if isinstance(want, int | np.integer) and int(want) != have:
            raise fault(
                f"{where}: axis {axis} of {parameter.name} is declared {int(want)}, "
                f"the argument has shape {list(shape)}"
            )


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
