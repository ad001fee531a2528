"""Scalars of `shapes` mode: one value per loop iteration or block, so that equal iterations are run once; or unknown.

A loop body runs once for all iterations that behave alike. Its loop variable is a `Lane`: an array with one axis per
open loop (axis -1 is the block, -2 the outermost loop, and so on). Arithmetic is by NumPy. Where the program needs one
answer for all (a branch, a trip count, a shape), `Axes.settle` keeps the longest leading run of lanes that agree with
the first; the lanes dropped are run again later, from the top of the loop body. So nothing is assumed about the
program: lanes only ever shrink to iterations that took exactly the path that was recorded.

A lane may also be a linear form of the numbers that a task was given: then it is known what it would be for others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from npuscope.tile.fault import NeedsValues, fault
from npuscope.tile.record import sites
from npuscope.tile.record.recorder import Factors, Moving, Offset

Kind = TypeVar("Kind", bound=np.generic)
Plain = int | float | np.integer | np.floating | np.bool_
Whole: TypeAlias = "int | Lane"  # an offset, an extent, an index
Number: TypeAlias = "Plain | Lane"
Array: TypeAlias = "npt.NDArray[np.int64] | npt.NDArray[np.float64] | npt.NDArray[np.bool_]"
Dependence: TypeAlias = Callable[["Lane", object], "LinearForm | None"]


class Axes:
    """The loops a program is in, by lanes: how many each runs with now, and which pass over which loop each axis is.

    `epoch` counts every change, so that a number made earlier knows to look again at what is left of its lanes.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.passes: tuple[int, ...] = ()
        self.epoch = 0
        self._passes = 0
        self._single, self._single_at = True, 0  # is_single() at an epoch
        self._widths: list[int] = []
        self._left: dict[int, int] = {}  # of passes that ended with fewer lanes than they began with: how many

    def open(self, size: int) -> None:
        """A pass over the next inner loop with this many lanes."""
        self._passes += 1
        self.epoch += 1
        self.sizes.append(size)
        self._widths.append(size)
        self.passes = (*self.passes, self._passes)

    def close(self) -> int:
        """Ends the innermost pass; how many lanes were left of it."""
        self.epoch += 1
        left = self.sizes.pop()
        if left != self._widths.pop():
            self._left[self.passes[-1]] = left
        self.passes = self.passes[:-1]
        return left

    def keep(self, count: int) -> None:
        """Goes on with the first lanes of the innermost pass."""
        if count < self.sizes[-1]:
            self.sizes[-1] = count
            self.epoch += 1

    def only_first(self) -> None:
        """Goes on with the first lane only."""
        if not self.is_single():
            self.sizes[:] = [1] * len(self.sizes)
            self.epoch += 1

    def is_single(self) -> bool:
        """Whether every open loop runs one lane."""
        if self._single_at != self.epoch:
            self._single, self._single_at = all(size == 1 for size in self.sizes), self.epoch
        return self._single

    def trim(self, values: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
        """Cuts away the lanes that were dropped since an array was made in the loops still open."""
        for k, size in enumerate(self.sizes[: values.ndim]):
            if values.shape[-1 - k] > size:
                values = values[(..., slice(size)) + (slice(None),) * k]
        return values

    def trim_offset(self, offset: Offset) -> Offset:
        """The same for where something lies."""
        if isinstance(offset, np.ndarray):
            return self.trim(offset)
        if type(offset) is Moving and isinstance(offset.at, np.ndarray):
            return Moving(self.trim(offset.at), offset.ways)
        return offset

    def current(self, values: npt.NDArray[Kind], passes: tuple[int, ...]) -> npt.NDArray[Kind]:
        """An array made in other passes, as of now: of a pass that is over, its last iteration counts, as in Python."""
        for k in range(values.ndim):
            if k >= len(self.passes) or passes[k] != self.passes[k]:
                last = min(self._left.get(passes[k], values.shape[-1 - k]), values.shape[-1 - k])
                values = values[(..., slice(last - 1, last)) + (slice(None),) * k]
        while values.ndim > len(self.sizes):
            values = values[0]
        return self.trim(values)

    def settle(self, values: npt.NDArray[Kind]) -> Kind:
        """One value for all lanes: the first lane's, after dropping what disagrees with it."""
        first: Kind = values[(0,) * values.ndim]
        if values.ndim == 0:
            return first
        pattern = np.asarray(values == first)
        if pattern.all():
            return first
        for k in range(values.ndim):
            along = np.moveaxis(pattern, -1, 0)
            same = np.all((along == along[:1]).reshape(len(along), -1), axis=1) if pattern.ndim > 1 else along
            keep = len(same) if bool(np.all(same)) else int(np.argmin(same))
            if keep < len(same):
                self.sizes[k] = keep
                self.epoch += 1
            pattern = along[0]
        return first


# --- numbers that are watched


class WatchedNumbers:
    """The whole numbers that a task is given, watched while its body runs, to see what depends on them.

    A sum of them with whole factors and plain numbers is a *linear form*. Where it only says where a box lies, the same
    body with other numbers does the same elsewhere, as long as all boxes lie inside. Where it is compared, it is enough
    that it stays on its side. Whoever looks at its value in any other way *fixes* the numbers in it: the body is known
    for these numbers alone.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.fixed: set[int] = set()
        self.reach: dict[Factors, tuple[int, int]] = {}  # of a form: how far it may move, down and up

    def form(self, place: int) -> LinearForm:
        """One of the numbers itself."""
        return LinearForm(self, tuple([int(k == place) for k in range(self.count)]))


class LinearForm(NamedTuple):
    """How a number depends on those that are watched."""

    watched: WatchedNumbers
    factors: Factors

    def plus(self, other: LinearForm | None, sign: int = 1) -> LinearForm:
        if other is None:
            return self
        factors = tuple([a + sign * b for a, b in zip(self.factors, other.factors, strict=True)])
        return LinearForm(self.watched, factors)

    def times(self, factor: int) -> LinearForm:
        return LinearForm(self.watched, tuple([factor * a for a in self.factors]))

    def fix(self) -> None:
        """Somebody looks at the value."""
        self.watched.fixed.update(k for k, factor in enumerate(self.factors) if factor)

    def within(self, down: int, up: int) -> None:
        """What was done holds as long as the form moves no further."""
        low, high = self.watched.reach.get(self.factors, (down, up))
        self.watched.reach[self.factors] = (max(low, down), min(high, up))


# --- lanes


def _binary(
    name: str, kernel: np.ufunc, swapped: bool = False, linear: Dependence | None = None
) -> Callable[[Lane, object], Whole]:
    """An operator by NumPy, lane by lane; `linear`: how its result depends on watched numbers."""
    python = getattr(operator, f"__{name}__")
    plain = name in _PLAIN
    divides = name in ("floordiv", "mod", "truediv")

    def apply(self: Lane, other: object) -> Whole:
        if type(other) is not int and type(other) is not Lane and not isinstance(other, _NUMBERS):
            return NotImplemented  # type: ignore[no-any-return]
        if linear is not None and (self.linear is not None or (type(other) is Lane and other.linear is not None)):
            form = linear(self, other)
            if form is not None:
                mine, value = self.now(), other.now() if type(other) is Lane else other
                made = kernel(value, mine) if swapped else kernel(mine, value)
                if any(form.factors):
                    return self.like(made, form)
                return self.like(made) if made.ndim else int(made)
        if not self.width or self.axes.is_single():  # one number, now that it is looked at
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
        if self.linear is None and (type(other) is not Lane or other.linear is None):
            return by_lanes(self, other)  # type: ignore[return-value]
        gap = _difference(self, other)
        if type(gap) is not Lane or gap.linear is None:
            return by_lanes(self, other) if gap is NotImplemented else python(gap, 0)  # type: ignore[return-value]
        for first, last in _SIDES[name]:
            if gap.lies_in(first, last):
                return bool(python(min(first, last, key=abs), 0))
        return by_lanes(gap, 0)  # type: ignore[return-value]

    return apply


_FAR = 1 << 62
_ON_OR_ABOVE, _ABOVE = ((-_FAR, -1), (0, _FAR)), ((-_FAR, 0), (1, _FAR))
_ON = ((-_FAR, -1), (0, 0), (1, _FAR))
_SIDES = {"lt": _ON_OR_ABOVE, "ge": _ON_OR_ABOVE, "le": _ABOVE, "gt": _ABOVE, "eq": _ON, "ne": _ON}


def _unary(name: str, kernel: np.ufunc) -> Callable[[Lane], Whole]:
    python = getattr(operator, name)

    def apply(self: Lane) -> Whole:
        if self.width and not self.axes.is_single():
            return self.like(kernel(_counted(self.values)))
        return python(number(self.values))  # type: ignore[no-any-return]

    return apply


def _added(one: Lane, other: object, sign: int = 1) -> LinearForm | None:
    """How one + other depends on watched numbers; None where it is no linear form."""
    if not isinstance(other, Lane):
        return one.linear if type(other) is int else None
    if one.linear is not None:
        return one.linear.plus(other.linear, sign) if other.is_whole else None
    assert other.linear is not None
    return other.linear.times(sign) if one.is_whole else None


def _subtracted(one: Lane, other: object) -> LinearForm | None:
    return _added(one, other, -1)


def _subtracted_from(one: Lane, other: object) -> LinearForm | None:
    form = _added(one, other, -1)
    return None if form is None else form.times(-1)


def _multiplied(one: Lane, other: object) -> LinearForm | None:
    return one.linear.times(other) if one.linear is not None and type(other) is int else None


_difference = _binary("sub", np.subtract, linear=_subtracted)


class Lane:
    """A number that may differ from lane to lane."""

    __slots__ = ("_epoch", "_passes", "_values", "axes", "linear")
    __array_ufunc__ = None  # NumPy scalars leave operators to us

    def __init__(self, values: Array, axes: Axes, linear: LinearForm | None = None) -> None:
        self._values, self.axes, self.linear = values, axes, linear
        self._epoch = axes.epoch
        self._passes = axes.passes

    def like(self, values: Array, linear: LinearForm | None = None) -> Lane:
        """Another number of the same program."""
        return Lane(values, self.axes, linear)

    def now(self) -> Array:
        """The lanes that are left; watched numbers stay free."""
        axes = self.axes
        if self._epoch != axes.epoch:
            self._values = axes.current(self._values, self._passes)  # type: ignore[assignment]
            self._epoch = axes.epoch
            self._passes = axes.passes
        return self._values

    @property
    def values(self) -> Array:
        """The numbers themselves, to be looked at."""
        if self.linear is not None:
            self.linear.fix()
            self.linear = None
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
        return values if self.linear is None else Moving(values, frozenset([self.linear.factors]))

    def settled_in(self, first: int, last: int) -> bool:
        """Whether the lanes that go on lie between these: those that are where the first lane is."""
        return self.lies_in(first, last) or bool(self.like((self.values >= first) & (self.values <= last)))

    def lies_in(self, first: int, last: int) -> bool:
        """Whether every lane lies between these, both included."""
        values = self.now()
        low, high = int(values.min()), int(values.max())
        inside = first <= low and high <= last
        if inside and self.linear is not None:
            self.linear.within(first - low, last - high)
        return inside

    def settled(self) -> int | float | bool:
        """One value for all lanes that go on."""
        return number(self.axes.settle(self.values))

    def _check_divisor(self, divisor: Any) -> None:
        """Lanes that divide by zero are run by themselves."""
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

    __add__, __radd__ = _binary("add", np.add, linear=_added), _binary("add", np.add, True, _added)
    __sub__ = _difference
    __rsub__ = _binary("sub", np.subtract, True, _subtracted_from)
    __mul__, __rmul__ = (
        _binary("mul", np.multiply, linear=_multiplied),
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


class Unknown:
    """Arithmetic with it stays unknown; a branch, a bound or an index on it cannot be recorded without computing.

    `origins`: the tensors and tasks that it came from. There is one object for each set of them, so that turns of a
    loop that find the same are seen to do so.
    """

    __array_ufunc__ = None
    _kept: ClassVar[WeakValueDictionary[frozenset[object], Unknown]] = WeakValueDictionary()

    def __init__(self, origins: frozenset[object] = frozenset()) -> None:
        self.origins = origins

    @classmethod
    def of(cls, *origins: object) -> Unknown:
        """What comes from tensors, tasks and other unknown numbers."""
        found: frozenset[object] = frozenset()
        for one in origins:
            found |= one.origins if isinstance(one, Unknown) else {one}
        made = cls._kept.get(found)
        if made is None:
            made = cls._kept[found] = cls(found)
        return made

    def _arithmetic(self, *others: object) -> Unknown:
        more = [one for one in others if isinstance(one, Unknown) and one is not self]
        return Unknown.of(self, *more) if more else self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _arithmetic
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __abs__ = __pow__ = _arithmetic
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = __pos__ = __rpow__ = _arithmetic
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _arithmetic
    __lt__ = __le__ = __gt__ = __ge__ = _arithmetic
    __eq__ = __ne__ = _arithmetic  # type: ignore[assignment]
    __hash__ = object.__hash__

    def needed(self) -> NoReturn:
        """Somebody must know it."""
        place = sites.site(sites.here())
        needs = NeedsValues(
            "the program's control flow depends on a value that shapes mode does not compute",
            path=place.file,
            line=place.line,
            remedy="Record it with values instead.",
        )
        needs.origins = self.origins
        raise needs

    __bool__ = __index__ = __int__ = __float__ = needed


UNKNOWN = Unknown()
