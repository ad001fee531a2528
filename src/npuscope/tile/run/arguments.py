"""How the user's arrays get into GM: NumPy arrays, torch tensors, placeholders, numbers.

torch is never imported here; it is taken where the user's script has imported it.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import CellType, FunctionType
from typing import Any, TypeAlias, TypeGuard

import ml_dtypes
import numpy as np

from npuscope.ops.dtypes import FP4E2M1X2, HALF_BYTES, Array, DataType, Element, of_storage, packed, unpacked
from npuscope.tile.fault import TileError, fault
from npuscope.tile.graph.boxes import row_major
from npuscope.tile.record.model import Direction
from npuscope.tile.run.state import TileRun
from npuscope.tile.values import signature as types
from npuscope.tile.values.checks import Scalar, dtype_of, fitting, is_number, shape_of, shown
from npuscope.tile.values.tensors import Fractal, Tensor

TorchTensor: TypeAlias = Any
Extents = dict[types.DynVar, int]
_NO_TENSORS = (str, bytes, list, tuple, dict, set, complex, np.generic)
_NO_DEFAULT = inspect.Parameter.empty
_WORD = re.compile(r"[A-Za-z_]\w*")
_DIRECTED = re.compile(r"\s*(?:\w+\.)*(Out|InOut)\s*\[")


@dataclass(frozen=True)
class Placeholder:
    """A tensor argument without values, for `shapes` mode.

    `make`: its values, where they may steer something; `make_row`: one row of its outermost axis, only to be read.
    """

    shape: tuple[int, ...]
    dtype: DataType
    make: Callable[[], Array] | None = field(default=None, compare=False, repr=False)
    make_row: Callable[[int], Array] | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", shape_of(self.shape))
        dtype_of(self.dtype, "Placeholder")


@dataclass(frozen=True)
class Parameter:
    name: str
    annotation: object
    direction: Direction | None
    default: object = _NO_DEFAULT

    def new_array(self) -> Array | None:
        """An array of the declared shape, where it is declared in full."""
        wanted, shape = self.annotation, self.fixed_shape
        if not isinstance(wanted, types.TensorType) or wanted.dtype is None or wanted.dtype.storage is None:
            return None
        return None if shape is None else np.zeros(shape, wanted.dtype.storage)

    @property
    def fixed_shape(self) -> tuple[int, ...] | None:
        """The declared shape where no dimension of it is known at run time only."""
        shape = self.annotation.shape if isinstance(self.annotation, types.TensorType) else None
        extents = [int(n) for n in shape or () if not isinstance(n, types.DynVar | types.DynExpr)]
        return None if shape is None or len(extents) < len(shape) else tuple(extents)

    @property
    def rows_at_run_time(self) -> bool:
        """Whether the outermost extent is a run-time dimension."""
        shape = self.annotation.shape if isinstance(self.annotation, types.TensorType) else None
        return isinstance(next(iter(shape or ()), None), types.DynVar | types.DynExpr)


class Elsewhere(ABC):
    """An argument that lives elsewhere and knows how to become a tensor of a run."""

    shape: tuple[int, ...]
    dtype: DataType

    @abstractmethod
    def shaped_as(self, declared: tuple[int, ...] | None) -> Elsewhere:
        """The same as a parameter declares it, where it has as many elements."""

    @abstractmethod
    def enter(self, run: TileRun, parameter: Parameter) -> Tensor: ...


def parameters(function: FunctionType, around: Mapping[str, object]) -> tuple[Parameter, ...]:
    """The parameters of a tile function with their annotations evaluated where that is possible; `around`: names of
    the functions it was made in.
    """
    closure = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    bound = {name: cell.cell_contents for name, cell in closure if cell != CellType()}  # those that are by now
    names = {**function.__globals__, **around, **bound}
    hints = {name: _evaluated(one, names) for name, one in function.__annotations__.items()}
    return tuple(
        Parameter(name, types.bare(hints.get(name)), types.direction(hints.get(name)), one.default)
        for name, one in inspect.signature(function).parameters.items()
    )


def _evaluated(annotation: object, names: dict[str, object]) -> object:
    """What an annotation that is text says; of one that cannot be evaluated, for Python would not have asked, how the
    parameter is used.
    """
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, names)
    except TileError:  # a shape or type that is none
        raise
    except Exception:
        used = _DIRECTED.match(annotation)
        return types.Directed("InOut" if used[1] == "InOut" else "Out", None) if used else None


def names_around(function: FunctionType) -> dict[str, object]:
    """What annotations that are text name of the functions that a function is being made in."""
    words = {word for one in function.__annotations__.values() if isinstance(one, str) for word in _WORD.findall(one)}
    found: dict[str, object] = {}
    frame = sys._getframe(1) if words else None
    while frame is not None:
        if frame.f_code.co_filename == function.__code__.co_filename and frame.f_code.co_name != "<module>":
            found = {**{name: value for name, value in frame.f_locals.items() if name in words}, **found}
        frame = frame.f_back
    return found


def with_outputs(
    function: str, wanted: tuple[Parameter, ...], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a call from outside; its outputs may be left out, all of them: they are made and returned."""
    outputs = {p.name: p for p in wanted if p.direction == "Out"}
    required = [p for p in wanted if p.default is _NO_DEFAULT]
    here = dict(zip((p.name for p in wanted), args, strict=False))
    left_out = len(args) == len(required) - len(outputs) or (
        len(args) == len(wanted) - len(outputs) and any(is_number(here.get(name)) for name in outputs)
    )
    if not outputs or not left_out or kwargs:
        return by_name(function, wanted, args, kwargs)
    made = {name: parameter.new_array() for name, parameter in outputs.items()}
    for name, array in made.items():
        if array is None:
            raise fault(f"{function}() needs the argument {name}: its shape is not declared")
    return {**by_name(function, tuple(p for p in wanted if p.name not in made), args, kwargs), **made}


def by_name(
    function: str, wanted: tuple[Parameter, ...], args: tuple[object, ...], kwargs: Mapping[str, object]
) -> dict[str, object]:
    """The arguments of a call by parameter; each must be there, once, and no others."""
    names = [p.name for p in wanted]
    if len(args) > len(names):
        raise fault(f"{function}() takes {len(names)} arguments ({', '.join(names)}), not {len(args)}")
    for name in kwargs:
        if name not in names:
            raise fault(f"{function}() has no parameter {name}", f"It has {', '.join(names)}.")
        if name in names[: len(args)]:
            raise fault(f"{function}() is given {name} twice, by place and by name")
    defaults = {p.name: p.default for p in wanted if p.default is not _NO_DEFAULT}
    given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
    for parameter in wanted:
        if parameter.name not in given:
            raise fault(f"{function}() needs the argument {parameter.name}")
        value = given[parameter.name]
        if not isinstance(parameter.annotation, types.TensorType) or value is parameter.default:
            continue
        if value is None or is_number(value) or isinstance(value, _NO_TENSORS):
            raise fault(f"{function}(): {parameter.name} is declared a tensor, the argument is {shown(value)}")
        if parameter.annotation.layout and isinstance(value, Tensor) and value.fractal is None:
            given[parameter.name] = value.laid_out(parameter.annotation.layout)
    return given


def bind(
    run: TileRun, parameter: Parameter, value: object, dynamic: Extents, where: str
) -> tuple[object, Callable[[], None] | None]:
    """An argument of an entry function as the program sees it, and what hands its values back where GM has a copy."""
    name, annotation = parameter.name, parameter.annotation
    if isinstance(value, Elsewhere):
        value = value.shaped_as(parameter.fixed_shape)
        _check(run, parameter, value.shape, value.dtype, dynamic, where)
        return value.enter(run, parameter), None
    if isinstance(value, Placeholder):
        if run.computes:
            raise fault(f"{where}: the argument {name} is a placeholder", "Record it in shapes mode.")
        return _of_placeholder(run, parameter, value, dynamic, where), None
    if annotation is types.constexpr:
        return value, None
    if is_number(value):
        return _number(value, parameter, where), None
    if value is types.RUNTIME:
        raise fault(f"{where}: {name} is pl.RUNTIME, which stands for a number", "Call it with the number.")
    if is_lazy(value) and not run.computes and value.ndim and _takes_whole_bytes(annotation):
        return bind(run, parameter, placeholder_of(value), dynamic, where)
    array = _as_array(value, name, where)
    if array is None:
        if isinstance(annotation, types.ScalarType) and not isinstance(value, Tensor):
            raise fault(f"{where}: {name} is declared a scalar, the argument is {shown(value)}")
        return value, None
    if array.ndim == 0 or isinstance(annotation, types.ScalarType):
        return _one_element(array, parameter, where), None
    carrier = None
    wanted = annotation.dtype if isinstance(annotation, types.TensorType) else None
    if wanted in HALF_BYTES and array.dtype.itemsize == 1 and array.dtype != wanted.storage:
        array, carrier = unpacked(np.ascontiguousarray(array), wanted), array
    elif wanted is not None and wanted.storage is not None and _carries(array.dtype, wanted):
        array = array.view(wanted.storage)
    dtype = wanted if wanted is FP4E2M1X2 and array.dtype == wanted.storage else of_storage(array.dtype)
    if dtype is None:
        raise fault(f"{where}: the argument {name} has the type {array.dtype}, which the chip has not")
    _check(run, parameter, array.shape, dtype, dynamic, where)
    if parameter.direction is not None and not array.flags.writeable:
        raise fault(f"{where}: {name} is declared pl.{parameter.direction}, the array is read-only")
    flat = (array if array.flags.c_contiguous else np.ascontiguousarray(array)).reshape(-1)
    copied = (carrier is not None or not np.shares_memory(flat, array)) and array.size > 0
    # Shapes mode may write to the whole numbers it keeps: into a copy, for nothing real is computed.
    keeps = dtype.steers or run.gm.slice.has("parameter", name, 0)
    data = flat if run.computes else flat.copy() if keeps else None
    tensor = _in_gm(run, parameter, array.shape, dtype, data, written=parameter.direction != "Out" or not run.computes)

    def give_back() -> None:
        if carrier is not None:
            packed(flat.reshape(array.shape), carrier)
        else:
            array[...] = flat.reshape(array.shape)

    return tensor, give_back if copied and run.computes and parameter.direction else None


def _carries(storage: np.dtype[Element], wanted: DataType) -> bool:
    """Whether elements of one type stand for those of another by their bits: torch has few unsigned types and none of
    scales, so its signed types and bytes carry them."""
    if storage == wanted.storage or wanted.storage is None or storage.itemsize != wanted.storage.itemsize:
        return False
    scales = wanted.is_float and wanted.bytes == 1 and storage in (np.dtype("u1"), np.dtype("i1"))
    return scales or (wanted.is_int and wanted.name.startswith("U") and storage.kind == "i")


def _as_array(value: object, name: str, where: str) -> Array | None:
    """The array of an argument that is one."""
    if isinstance(value, np.ma.MaskedArray):
        raise fault(f"{where}: {name} is a masked array", "Fill it first: x.filled(0).")
    if not is_torch_tensor(value):
        return value if isinstance(value, np.ndarray) else None
    try:
        return to_numpy(value)
    except (TypeError, RuntimeError):  # sparse, quantised, lazily negated, on another device, of a type NumPy has not
        what = f"{value.layout} {value.dtype} on {value.device}"
        raise fault(f"a torch tensor {what} shares no memory with NumPy", "Pass a dense tensor on the CPU.") from None


def _takes_whole_bytes(annotation: object) -> bool:
    return not (isinstance(annotation, types.TensorType) and annotation.dtype in HALF_BYTES)


def _of_placeholder(run: TileRun, parameter: Parameter, value: Placeholder, dynamic: Extents, where: str) -> Tensor:
    dtype, annotation = value.dtype, parameter.annotation
    wanted = annotation.dtype if isinstance(annotation, types.TensorType) else None
    if wanted is not None and dtype.storage is not None:
        pairs = wanted is FP4E2M1X2 and dtype.storage == wanted.storage
        dtype = wanted if pairs or _carries(dtype.storage, wanted) else dtype
    _check(run, parameter, value.shape, dtype, dynamic, where)
    keeps = dtype.steers or run.gm.slice.has("parameter", parameter.name, 0)
    source = None if value.make is None else partial(_flat, value.make, dtype, parameter.direction)
    tensor = _in_gm(run, parameter, value.shape, dtype, source if keeps else None, written=True)
    tensor.buffer.promise, tensor.buffer.promised_row = source, value.make_row
    return tensor


def _flat(make: Callable[[], Array], dtype: DataType, direction: Direction | None) -> Array:
    """The elements, to be written by this run alone; of an input those of the caller, copied before a write."""
    array = make().reshape(-1)
    array = array.view(array.dtype if dtype.storage is None else dtype.storage)
    if direction is not None:
        return array.copy()
    array.flags.writeable = False
    return array


def _in_gm(
    run: TileRun,
    parameter: Parameter,
    shape: tuple[int, ...],
    dtype: DataType,
    data: Array | Callable[[], Array] | None,
    *,
    written: bool,
) -> Tensor:
    direction = parameter.direction or "In"
    buffer = run.gm.add(parameter.name, shape, dtype, data, origin="parameter", direction=direction, written=written)
    buffer.rows_at_run_time = parameter.rows_at_run_time
    tensor = Tensor(buffer, 0, shape, row_major(shape))
    if isinstance(parameter.annotation, types.TensorType) and parameter.annotation.layout:
        layout, said = parameter.annotation.layout, parameter.annotation.shape or shape
        if not all(isinstance(extent, (int, np.integer)) for extent in said[-2:]):
            raise fault(
                f"{parameter.name} in {layout} has rows or columns that are known at run time only: {list(said)}"
            )
        tensor.fractal = Fractal.of(layout, shape, dtype)
    if isinstance(parameter.annotation, types.TensorType) and parameter.annotation.strides:
        strides = parameter.annotation.strides
        if sum((n - 1) * step for n, step in zip(shape, strides, strict=True)) >= math.prod(shape):
            raise fault(f"{parameter.name} of shape {list(shape)} is too small for its strides {list(strides)}")
        tensor.strides = strides
    return tensor


def _one_element(array: Array, parameter: Parameter, where: str) -> Scalar:
    """An array of one element where a number is expected."""
    name, annotation = parameter.name, parameter.annotation
    if array.size != 1 or isinstance(annotation, types.TensorType):
        what = "a scalar" if isinstance(annotation, types.ScalarType) else "a tensor"
        raise fault(f"{where}: {name} is declared {what}, the argument has shape {list(array.shape)}")
    item = float(array.astype(np.float32).item()) if array.dtype == BFLOAT16 else array.item()
    if not is_number(item):
        raise fault(f"{where}: the argument {name} has the type {array.dtype}, which the chip has not")
    return _number(item, parameter, where)


def _number(value: Scalar, parameter: Parameter, where: str) -> Scalar:
    annotation = parameter.annotation
    dtype = annotation.dtype if isinstance(annotation, types.ScalarType) else None
    fraction = isinstance(value, float | np.floating)
    if dtype is None:
        return np.float32(value) if fraction else int(value)
    if fraction and not dtype.is_float:
        raise fault(f"{where}: {parameter.name} is declared {dtype}, the argument is {shown(value)}")
    number = fitting(value, dtype, f"{where}: {parameter.name}")
    return np.float32(number) if dtype.is_float else number


def _check(
    run: TileRun, parameter: Parameter, shape: tuple[int, ...], dtype: DataType, dynamic: Extents, where: str
) -> None:
    """The annotation against the argument; a dynamic dimension takes the first extent it meets."""
    wanted, about = parameter.annotation, f"{parameter.name} is declared"
    if not isinstance(wanted, types.TensorType):
        return
    if wanted.dtype is not None and wanted.dtype is not dtype and wanted.dtype.storage != dtype.storage:
        raise fault(f"{where}: {about} {wanted.dtype}, the argument is {dtype}")
    if wanted.shape is None:
        return
    if len(wanted.shape) != len(shape):
        declared = [getattr(n, "name", n) for n in wanted.shape]
        raise fault(f"{where}: {about} {declared}, the argument has shape {list(shape)}")
    for axis, (want, have) in enumerate(zip(wanted.shape, shape, strict=True)):
        if isinstance(want, types.DynExpr):
            want.solve(have, dynamic)
            known = want.value(dynamic)
            extent = have if known is None else known
        else:
            extent = dynamic.setdefault(want, have) if isinstance(want, types.DynVar) else int(want)
        if extent != have:
            differs = f"{where}: axis {axis} of {about} {extent}, the argument has shape {list(shape)}"
            if not run.specialises or isinstance(want, types.DynVar | types.DynExpr):
                raise fault(differs)
            run.recorder.notice("extent", f"{differs}, for which PyPTO compiles the function")


# --- torch

BFLOAT16: np.dtype[Element] = np.dtype(ml_dtypes.bfloat16)
# What torch has and NumPy has not: a tensor goes over by its bits. torch's name -> NumPy's type.
_BY_BITS: dict[str, np.dtype[Element]] = {
    "bfloat16": BFLOAT16,
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
}


def torch_module() -> Any:
    """torch if the script imported it, else None."""
    return sys.modules.get("torch")


def is_torch_dtype(dtype: object) -> bool:
    torch = torch_module()
    return torch is not None and isinstance(dtype, torch.dtype)


def is_torch_tensor(value: object) -> TypeGuard[TorchTensor]:
    torch = torch_module()
    return torch is not None and isinstance(value, torch.Tensor)


def is_lazy(value: object) -> TypeGuard[TorchTensor]:
    """Whether a tensor's elements are made when somebody asks for them (script/lazy_torch.py)."""
    return hasattr(value, "lazy_storage")


def placeholder_of(tensor: TorchTensor) -> Placeholder:
    """A lazy tensor as an argument."""
    name = str(tensor.dtype).removeprefix("torch.")
    dtype = of_storage(by_bits(tensor.dtype) or np.dtype(name))
    if dtype is None:
        raise fault(f"a tensor of {tensor.dtype}, which the chip has not")
    return Placeholder(
        tuple(tensor.shape), dtype, lambda: to_numpy(tensor.made()), lambda number: to_numpy(tensor.made_row(number))
    )


def by_bits(dtype: object) -> np.dtype[Element] | None:
    """The NumPy type of a torch type that NumPy itself has not."""
    name = str(dtype).removeprefix("torch.")
    return np.dtype(np.uint8) if name == "float4_e2m1fn_x2" else _BY_BITS.get(name)  # two to a byte


def to_torch(array: Array) -> TorchTensor:
    """An array as a tensor of the same memory, where that lies side by side."""
    torch = torch_module()
    array = np.ascontiguousarray(array).reshape(array.shape)  # ascontiguousarray alone makes a 0-d array 1-d
    name = next((name for name, dtype in _BY_BITS.items() if dtype == array.dtype), None)
    if name is not None:
        return torch.from_numpy(array.view(f"int{8 * array.dtype.itemsize}")).view(getattr(torch, name))
    return torch.from_numpy(array)


def to_numpy(tensor: TorchTensor) -> Array:
    """A dense tensor on the CPU as an array of the same memory; TypeError or RuntimeError for others."""
    torch, tensor = torch_module(), tensor.detach()
    dtype = by_bits(tensor.dtype)
    if dtype is not None:
        bits = tensor.view(getattr(torch, f"int{8 * dtype.itemsize}"))
        return np.asarray(bits.numpy()).view(dtype)
    return np.asarray(tensor.numpy())
