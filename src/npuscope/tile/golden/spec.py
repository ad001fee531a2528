"""What a program is called with: tensors and scalars by name, shape, dtype and how to make them.

A dtype decides whose tensors they are: a torch dtype makes torch tensors, a NumPy dtype or a tile type (`pl.BF16`)
NumPy arrays.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from npuscope.tile.golden.arrays import (
    Dtype,
    UserTensor,
    array_of,
    copy_of,
    holds_numbers,
    is_float,
    storage_of,
    tensor_of,
    zeros,
)
from npuscope.tile.golden.misuse import Misuse, misuse, told
from npuscope.tile.golden.seeds import Seed, chosen
from npuscope.tile.record import sites
from npuscope.tile.record.model import Site
from npuscope.tile.values.user_torch import BFLOAT16, is_torch_dtype, is_torch_tensor, the_torch, torch_module

SCALARS = ("int8", "int32", "int64", "uint8", "bool", "float32", "float16", "bfloat16")


class _Named:
    """What both kinds of spec have: a name, a dtype, and the user's line that made them, for what is wrong later."""

    name: str
    dtype: object
    place: Site

    def _made_here(self) -> None:
        self.place = sites.site(sites.here())
        if not isinstance(self.name, str):
            raise misuse(f"the name of a {type(self).__name__} must be a str, not {told(self.name)}")

    def _bad(self, what: str, remedy: str = "") -> Misuse:
        return misuse(f"{type(self).__name__} '{self.name}': {what}", remedy, place=self.place)


@dataclass
class TensorSpec(_Named):
    """A tensor argument.

    `init_value`: None → zeros; a number → filled with it; an array or tensor → its values;
    `torch.randn/rand/zeros/ones` and `np.zeros/ones` → called with the shape and dtype; a callable with a required
    parameter → called with a seeded NumPy generator; any other callable → called without arguments. What comes out is
    converted to the dtype and must have the shape. `is_output` with an `init_value` is read and written. `resident`
    (worker id or "stacked") is for hardware, no effect here.
    """

    name: str
    shape: Sequence[int]
    dtype: object
    init_value: object = None
    is_output: bool = False
    resident: int | str | bool | None = None

    def __post_init__(self) -> None:
        self._made_here()
        if isinstance(self.shape, str) or not isinstance(self.shape, Sequence) or not all(map(_is_extent, self.shape)):
            raise self._bad(f"shape must be a list of whole numbers from 0, not {told(self.shape)}")
        try:
            storage_of(self.dtype)
        except TypeError:
            raise self._bad(f"{told(self.dtype)} is no dtype of tensors") from None
        where = self.resident
        number = isinstance(where, int) and not isinstance(where, bool) and where >= 0
        if not (where is None or where is False or where == "stacked" or number):
            raise self._bad(
                f"resident={where!r}",
                'It takes None, a worker id from 0 or "stacked"; True would not say which worker.',
            )

    @property
    def is_resident(self) -> bool:
        return self.resident is not None and self.resident is not False

    @property
    def is_input(self) -> bool:
        """Whether it has values before the program runs."""
        return not self.is_output or self.init_value is not None

    @property
    def storage(self) -> Dtype:
        return storage_of(self.dtype)

    def create_tensor(self, seed: Seed | None = None) -> UserTensor:
        """A contiguous tensor of the spec's kind; an output shares its memory with nobody."""
        value = self.init_value
        if value is None:
            return zeros(self.shape, self.dtype)
        if callable(value):
            value = self._called(value, seed)
        elif isinstance(value, int | float):
            value = np.full(tuple(self.shape), self._fitting(value))
        elif not is_torch_tensor(value) and not isinstance(value, np.ndarray | np.generic):
            raise self._bad(f"init_value is {told(value)}, no number, tensor or callable")
        if not holds_numbers(value):
            raise self._bad(f"init_value gives {told(value)}, no real numbers")
        made = self._converted(value)
        if tuple(made.shape) != tuple(self.shape):
            raise self._bad(f"init_value has shape {tuple(made.shape)}, the spec {tuple(self.shape)}")
        return made

    def _fitting(self, value: int | float) -> int | float:
        """A number as the dtype holds it; a float is cut off to a whole number, as torch does."""
        whole = self.storage.kind in "iu"
        least, most = _limits(self.storage)
        if (whole or isinstance(value, int)) and not least <= value <= most:
            raise self._bad(f"init_value is {told(value)}, out of range for {self.dtype} [{least}, {most}]")
        return int(value) if whole else float(value)

    def _called(self, make: Callable[..., object], seed: Seed | None) -> object:
        torch = torch_module()
        if torch is not None and make in (torch.randn, torch.rand, torch.zeros, torch.ones):
            return make(list(self.shape), dtype=self.dtype)
        if make in (np.zeros, np.ones):
            return make(tuple(self.shape), self.storage)
        if _wants_generator(make):
            return make((seed or chosen()).generator(self.name))
        return make()

    def _converted(self, value: object) -> UserTensor:
        if not is_torch_dtype(self.dtype):
            return array_of(value).astype(self.storage, order="C", copy=self.is_output)
        given = value if is_torch_tensor(value) else array_of(value)
        made = the_torch().as_tensor(given).to(self.dtype).contiguous()
        return copy_of(made) if self.is_output else made


def _wants_generator(make: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(make).parameters.values()
    except ValueError:  # a builtin that does not tell
        return False
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return any(p.default is inspect.Parameter.empty and p.kind in kinds for p in parameters)


def _limits(storage: Dtype) -> tuple[int | float, int | float]:
    """Of whole numbers; for a float dtype of those that Python can make a float of."""
    if storage.kind not in "iu":
        return -sys.float_info.max, sys.float_info.max
    limits = np.iinfo(storage.name)
    return int(limits.min), int(limits.max)


def _is_extent(size: object) -> bool:
    return isinstance(size, int | np.integer) and not isinstance(size, bool) and int(size) >= 0


@dataclass
class ScalarSpec(_Named):
    """A scalar argument. `value` becomes a 0-d tensor of the dtype: program and golden see the same rounding."""

    name: str
    dtype: object
    value: object

    def __post_init__(self) -> None:
        self._made_here()
        storage = self._storage()
        given = self.value
        if is_torch_tensor(given) or isinstance(given, np.ndarray):
            if tuple(given.shape) != ():
                raise self._bad(f"a tensor of shape {tuple(given.shape)} is no scalar")
            if array_of(given).dtype != storage:
                raise self._bad(f"a tensor of {given.dtype} does not match dtype {self.dtype}")
            return
        self._check(given, storage)
        plain = np.array(given if storage.kind in "iub" else np.float64(given))  # type: ignore[arg-type]  # a number
        self.value = tensor_of(plain.astype(storage), self.dtype)

    def _storage(self) -> Dtype:
        try:
            storage = storage_of(self.dtype)
        except TypeError:
            storage = None
        if storage is None or storage.name not in SCALARS:
            raise self._bad(f"unsupported dtype {self.dtype}", f"It takes {', '.join(SCALARS)}.")
        return storage

    def _check(self, given: object, storage: Dtype) -> None:
        if storage == np.bool_:
            wanted, fits = "bool", isinstance(given, bool | np.bool_)
        elif np.issubdtype(storage, np.integer):
            wanted, fits = "int", isinstance(given, int | np.integer) and not isinstance(given, bool)
        else:
            wanted = "int or float"
            fits = isinstance(given, int | float | np.integer | np.floating | BFLOAT16.type)
            fits = fits and not isinstance(given, bool)
        if not fits:
            raise self._bad(f"{self.dtype} requires {wanted} value, got {type(given).__name__}")
        if isinstance(given, int | np.integer) and wanted != "bool":
            least, most = _limits(storage)
            if not least <= given <= most:
                raise self._bad(f"{told(given)} is out of range for {self.dtype} [{least}, {most}]")

    @property
    def tensor(self) -> UserTensor:
        """The value as a 0-d tensor."""
        return self.value if is_torch_tensor(self.value) else array_of(self.value)

    def to_python(self) -> int | float | bool:
        """The value as a Python number, after rounding to the dtype."""
        return python_number(self.value)


def python_number(value: object) -> int | float | bool:
    """A 0-d tensor as a Python number."""
    array = array_of(value)
    return float(array) if is_float(array) else bool(array) if array.dtype == np.bool_ else int(array)


Spec = TensorSpec | ScalarSpec
