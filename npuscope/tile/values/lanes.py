"""Scalars that stand for one value per loop iteration or block, so that `shapes` mode runs equal iterations once.

In `shapes` mode a loop body runs once for all iterations that behave alike. Its loop variable is a `Lane`: an array
with one axis per open loop (axis -1 is the block, -2 the outermost loop, and so on). Arithmetic is by NumPy. Where
the program needs one answer for all (a branch, a trip count, a shape), `settle` keeps the longest leading run of
lanes that agree with the first; the lanes dropped are run again later, from the top of the loop body. So nothing is
assumed about the program: lanes only ever shrink to iterations that took exactly the path that was recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from npuscope.tile.fault import fault

Array = npt.NDArray[Any]


class Axes:
    """The loops a program is in, by lanes: how many each runs with now, and which pass over which loop each axis is.

    `epoch` counts every change, so that a number made earlier knows to look again at what is left of its lanes.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.passes: tuple[int, ...] = ()
        self.epoch = 0
        self._passes = 0
        self._widths: list[int] = []
        self._kept: dict[int, int] = {}  # of passes that ended with fewer lanes than they began with: how many
        self.agreed: Array | None = None  # which outermost lanes went with the first when some were dropped first

    def reset(self) -> None:
        """No loop is open."""
        self.epoch += 1
        self.passes = ()
        for held in (self.sizes, self._widths, self._kept):
            held.clear()

    def held(self) -> tuple[list[int], list[int], tuple[int, ...]]:
        """The loops that are open, for `resume` after other ranks had their turn."""
        return self.sizes[:], self._widths[:], self.passes

    def resume(self, held: tuple[list[int], list[int], tuple[int, ...]]) -> None:
        self.sizes[:], self._widths[:], self.passes = held
        self.epoch += 1

    def open(self, size: int) -> None:
        """A pass over the next inner loop with this many lanes."""
        self._passes += 1
        self.epoch += 1
        if not self.sizes:
            self.agreed = None
        self.sizes.append(size)
        self._widths.append(size)
        self.passes = (*self.passes, self._passes)

    def close(self) -> int:
        """Ends the innermost pass; how many lanes were left of it."""
        self.epoch += 1
        kept = self.sizes.pop()
        if kept != self._widths.pop():
            self._kept[self.passes[-1]] = kept
        self.passes = self.passes[:-1]
        return kept

    def trim(self, values: Array) -> Array:
        """Cuts away the lanes that were dropped since an array was made in the loops still open."""
        for k, size in enumerate(self.sizes[: values.ndim]):
            if values.shape[-1 - k] > size:
                values = values[(..., slice(size)) + (slice(None),) * k]
        return values

    def current(self, values: Array, passes: tuple[int, ...]) -> Array:
        """An array made in other passes, as of now: of a pass that is over, its last iteration counts, as in Python."""
        for k in range(values.ndim):
            if k >= len(self.passes) or passes[k] != self.passes[k]:
                last = min(self._kept.get(passes[k], values.shape[-1 - k]), values.shape[-1 - k])
                values = values[(..., slice(last - 1, last)) + (slice(None),) * k]
        while values.ndim > len(self.sizes):
            values = values[0]
        return self.trim(values)

    def settle(self, values: Array) -> Any:
        """One value for all lanes: the first lane's, after dropping what disagrees with it."""
        if values.ndim == 0:
            return values.item()
        first = values[(0,) * values.ndim]
        pattern = values == first
        if pattern.all():
            return first.item()
        for k in range(values.ndim):
            along = np.moveaxis(pattern, -1, 0)
            same = np.all((along == along[:1]).reshape(len(along), -1), axis=1) if pattern.ndim > 1 else along
            keep = len(same) if bool(np.all(same)) else int(np.argmin(same))
            if keep < len(same):
                if k == 0 and self.agreed is None:
                    self.agreed = same
                self.sizes[k] = keep
                self.epoch += 1
            pattern = along[0]
        return first.item()

    def is_single(self) -> bool:
        """Whether every open loop runs one lane."""
        return all(size == 1 for size in self.sizes)

    def keep(self, count: int) -> None:
        """Goes on with the first lanes of the innermost pass."""
        if count < self.sizes[-1]:
            self.sizes[-1] = count
            self.epoch += 1

    def only_first(self) -> None:
        """Goes on with the first lane alone."""
        if not self.is_single():
            self.sizes[:] = [1] * len(self.sizes)
            self.epoch += 1


AXES = Axes()  # of the run under way; runs do not nest


class Lane:
    """A number that may differ from lane to lane."""

    __slots__ = ("_epoch", "_passes", "_values")
    __array_ufunc__ = None  # NumPy scalars leave operators to us

    def __init__(self, values: Array) -> None:
        self._values = values
        self._epoch = AXES.epoch
        self._passes = AXES.passes

    @property
    def values(self) -> Array:
        if self._epoch != AXES.epoch:
            self._values = AXES.current(self._values, self._passes)
            self._epoch = AXES.epoch
            self._passes = AXES.passes
        return self._values

    def __index__(self) -> int:
        return int(AXES.settle(self.values))

    __int__ = __index__

    def __float__(self) -> float:
        return float(AXES.settle(self.values))

    def __bool__(self) -> bool:
        return bool(AXES.settle(self.values))

    def __repr__(self) -> str:
        return f"Lane({self.values.reshape(-1)[:4].tolist()}…)"

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __str__(self) -> str:
        return str(AXES.settle(self.values))

    def __format__(self, how: str) -> str:
        return format(AXES.settle(self.values), how)

    def __neg__(self) -> Any:
        return Lane(-_number(self.values))

    def __pos__(self) -> Any:
        return Lane(_number(self.values))

    def __invert__(self) -> Any:
        return Lane(-1 - _number(self.values))

    def __abs__(self) -> Any:
        return Lane(np.abs(_number(self.values)))

    def __divmod__(self, other: Any) -> Any:
        mine: Any = self
        return mine // other, mine % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self


def _number(values: Any) -> Any:
    """Truth values count as 0 and 1 in arithmetic, as Python's do."""
    if type(values) is int:
        return values
    if isinstance(values, np.ndarray):
        return values.astype(np.int64) if values.dtype.kind == "b" else values
    return int(values) if isinstance(values, bool | np.bool_) else values


def _check_divisor(divisor: Any) -> None:
    """Lanes that divide by zero are run apart."""
    zero = divisor == 0
    if bool(Lane(zero)) if isinstance(zero, np.ndarray) and zero.any() else np.any(zero):
        raise fault("integer division or modulo by zero")


def _binary(
    function: Callable[[Any, Any], Any], swapped: bool = False, plain: bool = False, divides: bool = False
) -> Callable[[Lane, Any], Any]:
    """An operator by NumPy; `plain` ones know truth values as such."""

    def operator(self: Lane, other: Any) -> Any:
        if type(other) is int:
            value: Any = other
        elif type(other) is Lane:
            value = other.values
        elif isinstance(other, int | float | np.number | np.bool_):
            value = other
        else:
            return NotImplemented
        if divides:
            _check_divisor(self.values if swapped else value)
            value = value if type(other) is int else of(other)
        mine = self.values
        if not plain:
            value, mine = _number(value), mine.astype(np.int64) if mine.dtype.kind == "b" else mine
        return Lane(function(value, mine) if swapped else function(mine, value))

    return operator


for _name, _function in {
    "pow": np.power,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "truediv": np.true_divide,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
}.items():
    _how = {"plain": _name in ("and", "or", "xor"), "divides": _name in ("floordiv", "mod", "truediv")}
    setattr(Lane, f"__{_name}__", _binary(_function, **_how))
    setattr(Lane, f"__r{_name}__", _binary(_function, swapped=True, **_how))
for _name, _function in {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}.items():
    setattr(Lane, f"__{_name}__", _binary(_function, plain=True))


def of(value: Any) -> Any:
    """The array of a Lane, or the number itself."""
    return value.values if type(value) is Lane else value


def whole(value: Any) -> int:
    """A number as one int for all lanes."""
    return value if type(value) is int else int(value)
