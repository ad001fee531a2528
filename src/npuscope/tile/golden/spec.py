"""What a program is called with: tensors and scalars by name, shape, dtype and how to make them.

A dtype decides whose tensors they are: a torch dtype makes torch tensors, a NumPy dtype or a tile type (`pl.BF16`)
NumPy arrays. Everything inside the harness is a NumPy array; a torch tensor and its array share memory.

Random inputs come out the same every time: each is drawn from a generator seeded with (seed, its name). The seed is
`seed=`, else the environment's NPUSCOPE_SEED, else 0. NumPy users get the generator as the argument of `init_value`;
for torch users the global generator is seeded, unless the script has called `torch.manual_seed` itself and nobody
asked for a seed. NumPy's old global generator (`np.random.rand`) is left alone.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
import traceback
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar, cast

import numpy as np
import numpy.typing as npt

from npuscope.base.errors import NpuscopeError
from npuscope.ops.dtypes import Array as Array  # what the harness works on
from npuscope.ops.dtypes import DataType, Element
from npuscope.tile.record import sites
from npuscope.tile.record.model import Direction, Site
from npuscope.tile.run.arguments import (
    BFLOAT16,
    TorchTensor,
    by_bits,
    is_torch_dtype,
    is_torch_tensor,
    to_numpy,
    to_torch,
    torch_module,
)

Dtype = np.dtype[Element]
NO_NUMBERS = "cOSUmM"  # NumPy's letters for complex, objects, text and dates
UserTensor = Array | TorchTensor
Kind = TypeVar("Kind")
SCALARS = ("int8", "int32", "int64", "uint8", "bool", "float32", "float16", "bfloat16")
SEED_VARIABLE = "NPUSCOPE_SEED"
BY_HAND = 1 << 32  # torch seeds itself with 53 or 64 random bits; people write smaller numbers
OURS = 1 << 40  # added to our seeds of torch, which looks at the low 32 bits: they are not taken for a script's own


def storage_of(dtype: object) -> Dtype:
    """The NumPy dtype of a torch dtype, a tile type (`pl.BF16`) or what NumPy takes; TypeError where there is none."""
    if is_torch_dtype(dtype):
        return by_bits(dtype) or torch_module().empty(0, dtype=dtype).numpy().dtype
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
    """Zeros of a user's dtype; memory is taken only where it is written, which torch's own would do at once."""
    return tensor_of(np.zeros(tuple(shape), storage_of(dtype)), dtype)


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
    return np.issubdtype(array.dtype, np.floating) or array.dtype == BFLOAT16 or array.dtype.name.startswith("float8")


def holds_numbers(value: object) -> bool:
    """Whether a value is real numbers, or lists of them."""
    if is_torch_tensor(value):
        return not value.is_complex()
    try:
        return array_of(value).dtype.kind not in NO_NUMBERS
    except ValueError:  # lists of different lengths
        return False


def python_number(value: object) -> int | float | bool:
    """A 0-d tensor as a Python number."""
    array = array_of(value)
    return float(array) if is_float(array) else bool(array) if array.dtype == np.bool_ else int(array)


class Misuse(NpuscopeError, ValueError, TypeError):
    """Something that the harness cannot use; a ValueError or TypeError to those who catch these."""


class NoSuchValue(Misuse, KeyError):
    """A golden asks for a tensor that no spec has; a KeyError to those who catch that."""


def misuse(what: str, remedy: str = "", *, place: Site | None = None) -> Misuse:
    """At the line of the user's code that led here, or at the place given."""
    place = place or sites.site(sites.here())
    return Misuse(what, path=place.file, line=place.line, remedy=remedy)


def misuse_of(function: Callable[..., object], what: str) -> Misuse:
    """At the line where a user's function is defined; where it cannot say, at the call."""
    code = getattr(function, "__code__", None)
    place = None if code is None else Site(code.co_filename, code.co_firstlineno, code.co_name)
    return misuse(what, place=place)


class Values(dict[str, object]):
    """What a golden function gets: tensors and numbers by name, which says what there is when asked for another."""

    def __missing__(self, name: object) -> NoReturn:
        place = sites.site(sites.here())
        remedy = f"There are {', '.join(self)}."
        raise NoSuchValue(f"the golden asks for {name!r}", path=place.file, line=place.line, remedy=remedy)


@contextmanager
def inputs_only_read() -> Iterator[None]:
    """NumPy forbids a golden to write to an input; this says what to do about it."""
    try:
        yield
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = Site(frame.filename, frame.lineno or 0, frame.name)
        remedy = "The spec of an output says is_output=True."
        raise misuse("the golden writes to an input, which is read-only", remedy, place=place) from error


def check_number(name: str, value: object, most: float = math.inf) -> None:
    """A number from 0 to `most`."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise misuse(f"{name} must be a number, not {described(value)}")
    if not 0 <= value <= most:
        wanted = f"in [0, {most:g}]" if most < math.inf else "0 or more"
        raise misuse(f"{name} must be {wanted}, not {value}")


def described(value: object) -> str:
    """A wrong value as a sentence names it."""
    return "None" if value is None else f"the {type(value).__name__} {str(value)[:40]!r}"


@dataclass(frozen=True)
class Seed:
    """A seed; `asked` if somebody chose it, so that it goes before a script's own."""

    value: int
    asked: bool

    def generator(self, name: str) -> np.random.Generator:
        """The generator of the input of this name."""
        return np.random.default_rng(self._words(name))

    def before(self, name: str) -> None:
        """Seed torch, where it is used, for the input of this name."""
        torch = torch_module()
        if torch is not None and not self.leaves_torch_alone():
            torch.manual_seed(OURS + int(np.random.SeedSequence(self._words(name)).generate_state(1)[0]))

    def leaves_torch_alone(self) -> bool:
        """Whether the script has seeded torch itself and nobody asked for another seed."""
        torch = torch_module()
        return not self.asked and torch is not None and 0 <= torch.initial_seed() < BY_HAND

    def _words(self, name: str) -> list[int]:
        return [self.value, zlib.crc32(name.encode())]


def chosen(seed: int | None = None) -> Seed:
    """The seed to use: the argument, else the environment's, else the default."""
    if seed is not None:
        if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
            raise misuse(f"seed must be a whole number from 0, not {described(seed)}")
        return Seed(int(seed), asked=True)
    text = os.environ.get(SEED_VARIABLE)
    if text is None:
        return Seed(0, asked=False)
    if not text.strip().isdecimal():
        raise NpuscopeError(f"{SEED_VARIABLE} is '{text}', no whole number from 0")
    return Seed(int(text), asked=True)


class _Named:
    """What both kinds of spec have: a name, a dtype, and the user's line that made them, for what is wrong later."""

    name: str
    dtype: object
    place: Site

    def _made_here(self) -> None:
        self.place = sites.site(sites.here())
        if not isinstance(self.name, str):
            raise misuse(f"the name of a {type(self).__name__} must be a str, not {described(self.name)}")

    def _bad(self, what: str, remedy: str = "") -> Misuse:
        return misuse(f"{type(self).__name__} '{self.name}': {what}", remedy, place=self.place)


@dataclass
class TensorSpec(_Named):
    """A tensor argument.

    `init_value`: None → zeros; a number → filled with it; an array or tensor → its values;
    `torch.randn/rand/zeros/ones` and `np.zeros/ones` → called with the shape and dtype; a callable with a required
    parameter → called with a seeded NumPy generator; any other callable → called without arguments. What comes out is
    converted to the dtype and must have the shape. `is_output` with an `init_value` is read and written. `resident`
    (worker id or "stacked") is for hardware, no effect here. `direction` is its parameter's, known once it was run.
    """

    name: str
    shape: Sequence[int]
    dtype: object
    init_value: object = None
    is_output: bool = False
    resident: int | str | bool | None = None
    direction: Direction | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self._made_here()
        if isinstance(self.shape, str) or not isinstance(self.shape, Sequence) or not all(map(_is_extent, self.shape)):
            raise self._bad(f"shape must be a list of whole numbers from 0, not {described(self.shape)}")
        try:
            storage_of(self.dtype)
        except TypeError:
            raise self._bad(f"{described(self.dtype)} is no dtype of tensors") from None
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
            return self._filled(self._fitting(value))
        elif not is_torch_tensor(value) and not isinstance(value, np.ndarray | np.generic):
            raise self._bad(f"init_value is {described(value)}, no number, tensor or callable")
        if not holds_numbers(value):
            raise self._bad(f"init_value gives {described(value)}, no real numbers")
        made = self._converted(value)
        if tuple(made.shape) != tuple(self.shape):
            raise self._bad(f"init_value has shape {tuple(made.shape)}, the spec {tuple(self.shape)}")
        return made

    def _fitting(self, value: int | float) -> int | float:
        """A number as the dtype holds it; a float is cut off to a whole number, as torch does."""
        whole = self.storage.kind in "iu"
        least, most = _limits(self.storage)
        if (whole or isinstance(value, int)) and not least <= value <= most:
            raise self._bad(f"init_value is {described(value)}, out of range for {self.dtype} [{least}, {most}]")
        return int(value) if whole else float(value)

    def _filled(self, value: int | float) -> UserTensor:
        """Made in the dtype: int8 weights of some GiB would take eight times that as Python's whole numbers."""
        made = zeros(self.shape, self.dtype)
        if value or math.copysign(1, value) < 0:  # zeros that nobody writes take no memory
            made[...] = value
        return made

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
        made = torch_module().as_tensor(given).to(self.dtype).contiguous()
        return copy_of(made) if self.is_output else made


def _wants_generator(make: Callable[..., object]) -> bool:
    try:
        parameters = inspect.signature(make).parameters.values()
    except ValueError:  # a builtin without a signature
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
    """A scalar argument. `value` becomes a 0-d tensor of the dtype: program and golden see the same rounding.

    `compile_runtime` (known at run time only) and `benchmark_step` (from dispatch to dispatch) are for hardware.
    """

    name: str
    dtype: object
    value: object
    compile_runtime: bool = False
    benchmark_step: object = None

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
                raise self._bad(f"{described(given)} is out of range for {self.dtype} [{least}, {most}]")

    @property
    def tensor(self) -> UserTensor:
        """The value as a 0-d tensor."""
        return self.value if is_torch_tensor(self.value) else array_of(self.value)

    def to_python(self) -> int | float | bool:
        """The value as a Python number, after rounding to the dtype."""
        return python_number(self.value)


Spec = TensorSpec | ScalarSpec
