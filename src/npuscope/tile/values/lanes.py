"""Scalars that stand for one value per loop iteration or block, so that `shapes` mode runs equal iterations once.

In `shapes` mode a loop body runs once for all iterations that behave alike. Its loop variable is a `Lane`: an array
with one axis per open loop (axis -1 is the block, -2 the outermost loop, and so on). Arithmetic is by NumPy. Where
the program needs one answer for all (a branch, a trip count, a shape), `Axes.settle` keeps the longest leading run of
lanes that agree with the first; the lanes dropped are run again later, from the top of the loop body. So nothing is
assumed about the program: lanes only ever shrink to iterations that took exactly the path that was recorded.

A lane may also follow the numbers that a task was given (given.py): then it is known what it would be for others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from npuscope.tile.fault import fault
from npuscope.tile.record.recorder import Moving, Offset
from npuscope.tile.values.axes import Axes
from npuscope.tile.values.given import Sum

Plain = int | float | np.integer | np.floating | np.bool_
Whole: TypeAlias = "int | Lane"  # an offset, an extent, an index
Number: TypeAlias = "Plain | Lane"
Array: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float64] | npt.NDArray[np.bool_]"
Follows = Callable[["Lane", object], Sum | None]


def _binary(
    name: str, kernel: np.ufunc, swapped: bool = False, follows: Follows | None = None
) -> Callable[[Lane, object], Whole]:
    """An operator by NumPy, lane by lane; `follows`: what the result does."""
    python = getattr(operator, f"__{name}__")
    plain = name in _PLAIN
    divides = name in ("floordiv", "mod", "truediv")

    def apply(self: Lane, other: object) -> Whole:
        if type(other) is not int and type(other) is not Lane and not isinstance(other, _NUMBERS):
            return NotImplemented  # type: ignore[no-any-return]
        if follows is not None and (self.follows is not None or (type(other) is Lane and other.follows is not None)):
            sum = follows(self, other)
            if sum is not None:
                mine, value = self.now(), other.now() if type(other) is Lane else other
                made = kernel(value, mine) if swapped else kernel(mine, value)
                if any(sum.factors):
                    return self.like(made, sum)
                return self.like(made) if made.ndim else int(made)
        if not self.width:  # one number, now that it is looked at
            one = number(self.values)
            made = python(other, one) if swapped else python(one, other)
            return made  # type: ignore[no-any-return]
        value = of(other)
        if divides:
            self._check_divisor(self.values if swapped else value)
            value = of(other)  # the lanes that are left
        mine = self.values
        if not plain:
            value, mine = _counted(value), _counted(mine)
        return self.like(kernel(value, mine) if swapped else kernel(mine, value))

    return apply


_NUMBERS = (int, float, np.number, np.bool_)
_PLAIN = {"and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge"}  # these know truth values as such


def _counted(values: Any) -> Any:
    """Truth values count as 0 and 1 in arithmetic, as Python's do."""
    if isinstance(values, np.ndarray):
        return values.astype(np.int64) if values.dtype.kind == "b" else values
    return int(values) if isinstance(values, bool | np.bool_) else values


def _comparison(name: str, kernel: np.ufunc) -> Callable[[Lane, object], bool | Lane]:
    """A comparison; of what a task was given it is enough that numbers stay on their side of each other."""
    python, by_lanes = getattr(operator, name), _binary(name, kernel)

    def apply(self: Lane, other: object) -> bool | Lane:
        if self.follows is None and (type(other) is not Lane or other.follows is None):
            return by_lanes(self, other)  # type: ignore[return-value]
        apart = _difference(self, other)
        if type(apart) is not Lane or apart.follows is None:
            return by_lanes(self, other) if apart is NotImplemented else python(apart, 0)  # type: ignore[return-value]
        for first, last in _SIDES[name]:
            if apart.lies_in(first, last):
                return bool(python(min(first, last, key=abs), 0))
        return by_lanes(apart, 0)  # type: ignore[return-value]

    return apply


_FAR = 1 << 62
_ON_OR_ABOVE, _ABOVE = ((-_FAR, -1), (0, _FAR)), ((-_FAR, 0), (1, _FAR))
_ON = ((-_FAR, -1), (0, 0), (1, _FAR))
_SIDES = {"lt": _ON_OR_ABOVE, "ge": _ON_OR_ABOVE, "le": _ABOVE, "gt": _ABOVE, "eq": _ON, "ne": _ON}


def _unary(name: str, kernel: np.ufunc) -> Callable[[Lane], Whole]:
    python = getattr(operator, name)

    def apply(self: Lane) -> Whole:
        if self.width:
            return self.like(kernel(_counted(self.values)))
        return python(number(self.values))  # type: ignore[no-any-return]

    return apply


def _added(one: Lane, other: object, sign: int = 1) -> Sum | None:
    """What one + other follows; None where it is no sum of what a task was given."""
    if not isinstance(other, Lane):
        return one.follows if type(other) is int else None
    if one.follows is not None:
        return one.follows.plus(other.follows, sign) if other.is_whole else None
    assert other.follows is not None
    return other.follows.times(sign) if one.is_whole else None


def _subtracted(one: Lane, other: object) -> Sum | None:
    return _added(one, other, -1)


def _subtracted_from(one: Lane, other: object) -> Sum | None:
    found = _added(one, other, -1)
    return None if found is None else found.times(-1)


def _multiplied(one: Lane, other: object) -> Sum | None:
    return one.follows.times(other) if one.follows is not None and type(other) is int else None


_difference = _binary("sub", np.subtract, follows=_subtracted)


class Lane:
    """A number that may differ from lane to lane."""

    __slots__ = ("_epoch", "_passes", "_values", "axes", "follows")
    __array_ufunc__ = None  # NumPy scalars leave operators to us

    def __init__(self, values: Array, axes: Axes, follows: Sum | None = None) -> None:
        self._values, self.axes, self.follows = values, axes, follows
        self._epoch = axes.epoch
        self._passes = axes.passes

    def like(self, values: Array, follows: Sum | None = None) -> Lane:
        """Another number of the same program."""
        return Lane(values, self.axes, follows)

    def now(self) -> Array:
        """The lanes that are left, whatever the number follows."""
        axes = self.axes
        if self._epoch != axes.epoch:
            self._values = axes.current(self._values, self._passes)  # type: ignore[assignment]
            self._epoch = axes.epoch
            self._passes = axes.passes
        return self._values

    @property
    def values(self) -> Array:
        """The numbers themselves, to be looked at."""
        if self.follows is not None:
            self.follows.pin()
            self.follows = None
        return self.now()

    @property
    def width(self) -> int:
        """The axes that it has; none: one number for all lanes."""
        return self._values.ndim

    @property
    def is_whole(self) -> bool:
        return self._values.dtype.kind in "iub"

    def place(self) -> Offset:
        """The numbers as where something lies."""
        values: Any = self.now()
        return values if self.follows is None else Moving(values, frozenset([self.follows.factors]))

    def settled_in(self, first: int, last: int) -> bool:
        """Whether the lanes that go on lie between these: those that are where the first lane is."""
        return self.lies_in(first, last) or bool(self.like((self.values >= first) & (self.values <= last)))

    def lies_in(self, first: int, last: int) -> bool:
        """Whether every lane lies between these, both included."""
        values = self.now()
        low, high = int(values.min()), int(values.max())
        inside = first <= low and high <= last
        if inside and self.follows is not None:
            self.follows.within(first - low, last - high)
        return inside

    def settled(self) -> int | float | bool:
        """One value for all lanes that go on."""
        return number(self.axes.settle(self.values))

    def _check_divisor(self, divisor: Any) -> None:
        """Lanes that divide by zero are run apart."""
        zero = divisor == 0
        if bool(self.like(zero)) if isinstance(zero, np.ndarray) and zero.any() else np.any(zero):
            raise fault("integer division or modulo by zero")

    def __index__(self) -> int:
        return int(self.settled())

    __int__ = __index__

    def __float__(self) -> float:
        return float(self.settled())

    def __bool__(self) -> bool:
        return bool(self.settled())

    def __repr__(self) -> str:
        if not self.width:
            return repr(number(self.now()))
        return f"Lane({self.now().reshape(-1)[:4].tolist()}…)"

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __str__(self) -> str:
        return str(self.settled())

    def __format__(self, how: str) -> str:
        return format(self.settled(), how)

    def __round__(self, digits: int | None = None) -> int | float:
        return round(self.settled(), digits)

    def __divmod__(self, other: object) -> tuple[Number, Number]:
        return self // other, self % other

    def __rdivmod__(self, other: object) -> tuple[Number, Number]:
        return other // self, other % self

    def __neg__(self) -> Whole:
        return self * -1

    __add__, __radd__ = _binary("add", np.add, follows=_added), _binary("add", np.add, True, _added)
    __sub__ = _difference
    __rsub__ = _binary("sub", np.subtract, True, _subtracted_from)
    __mul__, __rmul__ = (
        _binary("mul", np.multiply, follows=_multiplied),
        _binary("mul", np.multiply, True, _multiplied),
    )
    __floordiv__, __rfloordiv__ = _binary("floordiv", np.floor_divide), _binary("floordiv", np.floor_divide, True)
    __mod__, __rmod__ = _binary("mod", np.remainder), _binary("mod", np.remainder, True)
    __truediv__: Callable[[Lane, object], Number]
    __rtruediv__: Callable[[Lane, object], Number]
    __truediv__, __rtruediv__ = _binary("truediv", np.true_divide), _binary("truediv", np.true_divide, True)
    __pow__, __rpow__ = _binary("pow", np.power), _binary("pow", np.power, True)
    __and__, __rand__ = _binary("and", np.bitwise_and), _binary("and", np.bitwise_and, True)
    __or__, __ror__ = _binary("or", np.bitwise_or), _binary("or", np.bitwise_or, True)
    __xor__, __rxor__ = _binary("xor", np.bitwise_xor), _binary("xor", np.bitwise_xor, True)
    __lshift__, __rlshift__ = _binary("lshift", np.left_shift), _binary("lshift", np.left_shift, True)
    __rshift__, __rrshift__ = _binary("rshift", np.right_shift), _binary("rshift", np.right_shift, True)
    __eq__ = _comparison("eq", np.equal)  # type: ignore[assignment]
    __ne__ = _comparison("ne", np.not_equal)  # type: ignore[assignment]
    __lt__, __le__ = _comparison("lt", np.less), _comparison("le", np.less_equal)
    __gt__, __ge__ = _comparison("gt", np.greater), _comparison("ge", np.greater_equal)
    __pos__, __invert__, __abs__ = _unary("pos", np.positive), _unary("invert", np.invert), _unary("abs", np.abs)


def number(value: np.generic | Array) -> int | float | bool:
    """A NumPy scalar as Python's."""
    return value.item()


def of(value: object) -> Any:
    """The array of a Lane, or the number itself."""
    return value.values if type(value) is Lane else value


def place(value: Number) -> Offset:
    """A number as where something lies."""
    return value.place() if isinstance(value, Lane) else int(value)


def plain(value: object) -> Any:
    """A number that is the same in every lane as such; a Lane where it may differ."""
    return number(value.values) if type(value) is Lane and not value.width else value


def whole(value: Any) -> int:
    """A number as one int for all lanes."""
    return value if type(value) is int else int(value)
