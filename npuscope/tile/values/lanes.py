"""Scalars that stand for one value per loop iteration or block, so that `shapes` mode runs equal iterations once.

In `shapes` mode a loop body runs once for all iterations that behave alike. Its loop variable is a `Lane`: an array
with one axis per open loop (axis -1 is the block, -2 the outermost loop, and so on). Arithmetic is by NumPy. Where
the program needs one answer for all (a branch, a trip count, a shape), `settle` keeps the longest leading run of
lanes that agree with the first; the lanes dropped are run again later, from the top of the loop body. So nothing is
assumed about the program: lanes only ever shrink to iterations that took exactly the path that was recorded.

A lane may also follow the numbers that a task was given (`Given`): then it is known what it would be for others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from npuscope.tile.fault import fault
from npuscope.tile.record.frames import Factors, Moving, Offset
from npuscope.tile.values.axes import AXES, Array


class Given:
    """The whole numbers that a task is given, watched while its body runs.

    A sum of them with whole factors and plain numbers *follows* them. Where such a sum only says where a box lies, the
    same body with other numbers does the same elsewhere, as long as all boxes lie inside. Whoever looks at its value in
    any other way *pins* the numbers in it: then the body is known for these numbers alone.
    """

    def __init__(self, numbers: Sequence[int]) -> None:
        self.pinned: set[int] = set()
        self.reach: dict[Factors, tuple[int, int]] = {}  # a sum by its factors -> how far it may move, down and up
        self._count = len(numbers)
        self.lanes = [Lane(np.asarray(n, np.int64), Sum(self, self._unit(k))) for k, n in enumerate(numbers)]

    def _unit(self, k: int) -> Factors:
        return tuple([int(n == k) for n in range(self._count)])

    def pin(self, factors: Factors) -> None:
        self.pinned.update(k for k, factor in enumerate(factors) if factor)

    def within(self, factors: Factors, down: int, up: int) -> None:
        """What was done holds as long as the sum moves no further."""
        low, high = self.reach.get(factors, (down, up))
        self.reach[factors] = (max(low, down), min(high, up))


class Sum(NamedTuple):
    """What a number follows."""

    given: Given
    factors: Factors

    def plus(self, other: Sum | None, sign: int = 1) -> Sum:
        if other is None:
            return self
        return Sum(self.given, tuple([a + sign * b for a, b in zip(self.factors, other.factors, strict=True)]))

    def times(self, factor: int) -> Sum:
        return Sum(self.given, tuple([factor * a for a in self.factors]))


class Lane:
    """A number that may differ from lane to lane."""

    __slots__ = ("_epoch", "_passes", "_values", "follows")
    __array_ufunc__ = None  # NumPy scalars leave operators to us

    def __init__(self, values: Array, follows: Sum | None = None) -> None:
        self._values = values
        self._epoch = AXES.epoch
        self._passes = AXES.passes
        self.follows = follows

    def _now(self) -> Array:
        if self._epoch != AXES.epoch:
            self._values = AXES.current(self._values, self._passes)
            self._epoch = AXES.epoch
            self._passes = AXES.passes
        return self._values

    @property
    def values(self) -> Array:
        """The numbers themselves, to be looked at."""
        if self.follows is not None:
            self.follows.given.pin(self.follows.factors)
            self.follows = None
        return self._now()

    @property
    def is_whole(self) -> bool:
        return self._values.dtype.kind in "iub"

    def place(self) -> Offset:
        """The numbers as where something lies."""
        values = self._now()
        return values if self.follows is None else Moving(values, frozenset([self.follows.factors]))

    def settled_in(self, first: int, last: int) -> bool:
        """Whether the lanes that go on lie between these: those that are where the first lane is."""
        return self.lies_in(first, last) or bool(Lane((self.values >= first) & (self.values <= last)))

    def lies_in(self, first: int, last: int) -> bool:
        """Whether every lane lies between these, both included."""
        values = self._now()
        low, high = int(values.min()), int(values.max())
        inside = first <= low and high <= last
        if inside and self.follows is not None:
            self.follows.given.within(self.follows.factors, first - low, last - high)
        return inside

    def __index__(self) -> int:
        return int(AXES.settle(self.values))

    __int__ = __index__

    def __float__(self) -> float:
        return float(AXES.settle(self.values))

    def __bool__(self) -> bool:
        return bool(AXES.settle(self.values))

    def __repr__(self) -> str:
        return f"Lane({self._now().reshape(-1)[:4].tolist()}…)"

    def __hash__(self) -> int:
        return hash(self.__index__())

    def __str__(self) -> str:
        return str(AXES.settle(self.values))

    def __format__(self, how: str) -> str:
        return format(AXES.settle(self.values), how)

    def __round__(self, digits: int | None = None) -> Any:
        return round(AXES.settle(self.values), digits)

    if TYPE_CHECKING:  # put in below, by NumPy; where all lanes agree the result may be a plain number

        def __add__(self, other: Lane | int) -> Lane: ...
        def __radd__(self, other: int) -> Lane: ...
        def __sub__(self, other: Lane | int) -> Lane: ...
        def __rsub__(self, other: int) -> Lane: ...
        def __mul__(self, other: Lane | int) -> Lane: ...
        def __rmul__(self, other: int) -> Lane: ...
        def __floordiv__(self, other: Lane | int) -> Lane: ...
        def __mod__(self, other: Lane | int) -> Lane: ...
        def __abs__(self) -> Lane: ...
        def __lt__(self, other: Lane | float) -> Lane: ...
        def __le__(self, other: Lane | float) -> Lane: ...
        def __gt__(self, other: Lane | float) -> Lane: ...
        def __ge__(self, other: Lane | float) -> Lane: ...

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


def _added(one: Lane, other: Lane | int, sign: int = 1) -> Sum | None:
    """What one + other follows; None where it is no sum of what a task was given."""
    if type(other) is not Lane:
        return one.follows if type(other) is int else None
    if one.follows is not None:
        return one.follows.plus(other.follows, sign) if other.is_whole else None
    assert other.follows is not None
    return other.follows.times(sign) if one.is_whole else None


def _subtracted(one: Lane, other: Lane | int) -> Sum | None:
    return _added(one, other, -1)


def _subtracted_from(one: Lane, other: Lane | int) -> Sum | None:
    found = _added(one, other, -1)
    return None if found is None else found.times(-1)


def _multiplied(one: Lane, other: Lane | int) -> Sum | None:
    return one.follows.times(other) if one.follows is not None and type(other) is int else None


def _unary(name: str, kernel: Callable[[Any], Any]) -> Callable[[Lane], Any]:
    python = getattr(operator, name)

    def apply(self: Lane) -> Any:
        return Lane(kernel(_number(self.values))) if self._values.ndim else python(self.values.item())

    return apply


def _binary(
    name: str, kernel: Callable[[Any, Any], Any], follows: Callable[[Lane, Any], Sum | None] | None, swapped: bool
) -> Callable[[Lane, Any], Any]:
    """An operator by NumPy, lane by lane; `follows`: what the result does."""
    python = getattr(operator, f"__{name}__")
    plain = follows is None and name in _PLAIN
    divides = name in ("floordiv", "mod", "truediv")

    def apply(self: Lane, other: Any) -> Any:
        if type(other) is not int and type(other) is not Lane and not isinstance(other, _NUMBERS):
            return NotImplemented
        if follows is not None and (self.follows is not None or (type(other) is Lane and other.follows is not None)):
            sum = follows(self, other)
            if sum is not None:
                mine, value = self._now(), other._now() if type(other) is Lane else other
                made = kernel(value, mine) if swapped else kernel(mine, value)
                if any(sum.factors):
                    return Lane(made, sum)
                return Lane(made) if made.ndim else made.item()
        if not self._values.ndim:  # one number, now that it is looked at
            one = self.values.item()
            return python(other, one) if swapped else python(one, other)
        value = of(other)
        if divides:
            _check_divisor(self.values if swapped else value)
            value = of(other)  # the lanes that are left
        mine = self.values
        if not plain:
            value, mine = _number(value), _number(mine)
        return Lane(kernel(value, mine) if swapped else kernel(mine, value))

    return apply


_NUMBERS = (int, float, np.number, np.bool_)
_PLAIN = {"and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge"}  # these know truth values as such
for _name, _kernel, _follows, _follows_swapped in (
    ("add", np.add, _added, _added),
    ("sub", np.subtract, _subtracted, _subtracted_from),
    ("mul", np.multiply, _multiplied, _multiplied),
    ("pow", np.power, None, None),
    ("floordiv", np.floor_divide, None, None),
    ("mod", np.remainder, None, None),
    ("truediv", np.true_divide, None, None),
    ("and", np.bitwise_and, None, None),
    ("or", np.bitwise_or, None, None),
    ("xor", np.bitwise_xor, None, None),
    ("lshift", np.left_shift, None, None),
    ("rshift", np.right_shift, None, None),
):
    setattr(Lane, f"__{_name}__", _binary(_name, _kernel, _follows, swapped=False))
    setattr(Lane, f"__r{_name}__", _binary(_name, _kernel, _follows_swapped, swapped=True))


def _comparison(name: str, kernel: Callable[[Any, Any], Any]) -> Callable[[Lane, Any], Any]:
    """A comparison; of what a task was given it is enough that numbers stay on their side of each other."""
    python, by_lanes = getattr(operator, name), _binary(name, kernel, None, swapped=False)

    def apply(self: Lane, other: Any) -> Any:
        if self.follows is None and (type(other) is not Lane or other.follows is None):
            return by_lanes(self, other)
        apart = _difference(self, other)
        if type(apart) is not Lane or apart.follows is None:
            return by_lanes(self, other) if apart is NotImplemented else python(apart, 0)
        for first, last in _SIDES[name]:
            if apart.lies_in(first, last):
                return python(min(first, last, key=abs), 0)
        return by_lanes(apart, 0)

    return apply


_FAR = 1 << 62
_ON_OR_ABOVE, _ABOVE = ((-_FAR, -1), (0, _FAR)), ((-_FAR, 0), (1, _FAR))
_ON = ((-_FAR, -1), (0, 0), (1, _FAR))
_SIDES = {"lt": _ON_OR_ABOVE, "ge": _ON_OR_ABOVE, "le": _ABOVE, "gt": _ABOVE, "eq": _ON, "ne": _ON}
_difference = _binary("sub", np.subtract, _subtracted, swapped=False)
for _name, _compared in {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}.items():
    setattr(Lane, f"__{_name}__", _comparison(_name, _compared))
for _name, _of_one in {"pos": np.positive, "invert": np.invert, "abs": np.abs}.items():
    setattr(Lane, f"__{_name}__", _unary(_name, _of_one))
setattr(Lane, "__neg__", lambda self: self * -1)  # noqa: B010


def of(value: Any) -> Any:
    """The array of a Lane, or the number itself."""
    return value.values if type(value) is Lane else value


def place(value: Any) -> Offset:
    """A number as where something lies."""
    return value.place() if type(value) is Lane else int(value)


def plain(value: Any) -> Any:
    """A number that is the same in every lane as such; a Lane where it may differ."""
    return value.values.item() if type(value) is Lane and not value._values.ndim else value


def whole(value: Any) -> int:
    """A number as one int for all lanes."""
    return value if type(value) is int else int(value)
