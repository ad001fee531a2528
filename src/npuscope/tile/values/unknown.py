"""A scalar whose value `shapes` mode does not compute."""

from __future__ import annotations

from typing import NoReturn

from npuscope.tile.fault import NeedsValues
from npuscope.tile.record import sites


class Unknown:
    """Arithmetic with it stays unknown; a branch, a bound or an index on it cannot be recorded without computing."""

    __array_ufunc__ = None

    def _arithmetic(self, *_: object) -> Unknown:
        return self

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _arithmetic
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __neg__ = __abs__ = __pow__ = _arithmetic
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = __pos__ = __rpow__ = _arithmetic
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _arithmetic
    __lt__ = __le__ = __gt__ = __ge__ = _arithmetic
    __eq__ = __ne__ = _arithmetic  # type: ignore[assignment]
    __hash__ = object.__hash__

    def _needed(self) -> NoReturn:
        place = sites.site(sites.here())
        raise NeedsValues(
            "the program's control flow depends on a value that shapes mode does not compute",
            path=place.file,
            line=place.line,
            remedy="Record it with values instead.",
        )

    __bool__ = __index__ = __int__ = __float__ = _needed


UNKNOWN = Unknown()
