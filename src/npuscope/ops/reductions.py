"""Ops that make one element of each row [M, 1] or of each column [1, N]; the axis stays, of length 1.

NaN wins every maximum and minimum. A row's sum does not depend on how many rows the tile has, so that two tilings of
one program can be compared bit by bit: for that reason it is not a product with ones, which BLAS would do in a third of
the time. An op on rows has a scratch tile as large as its operand, and still reads while it writes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np

from npuscope.ops.dtypes import INT32, Array
from npuscope.ops.spec import VECTOR, Axis, OpRole, OpSpec

_NO_COST = "as a sum: no cost of it is public"


def _reduced(x: Array, ufunc: np.ufunc, axis: int) -> Array:
    result: Array = ufunc.reduce(x, axis=axis, dtype=x.dtype, keepdims=True)
    return result


def sum_of_rows(x: Array, rounded: Callable[[Array], Array], in_pairs: bool) -> Array:
    """The rows of a tile added up as the chip does, each step in the tile's type (pto-isa, TColSum.hpp): one after the
    other, or in pairs, level by level, the odd one of a level with its first pair.
    """
    if not in_pairs:
        total = x[..., :1, :]
        for at in range(1, x.shape[-2]):
            total = rounded(np.add(total, x[..., at : at + 1, :]))
        return total
    while (count := x.shape[-2]) > 1:
        pairs = rounded(np.add(x[..., 0 : count - 1 : 2, :], x[..., 1:count:2, :]))
        if count % 2:
            pairs[..., :1, :] = rounded(np.add(pairs[..., :1, :], x[..., -1:, :]))
        x = pairs
    return x


def _first_place(x: Array, find: Callable[..., Array], axis: int) -> Array:
    """int32 place of the first extreme; of the first NaN where there is one."""
    return find(x, axis=axis, keepdims=True).astype(np.int32)


class _Reduction(NamedTuple):
    numeric: Callable[..., Array]  # of the tile and an axis
    doc: str
    cost: str
    like: str = ""
    of_nothing: bool = False
    tmp_of_columns: bool = False  # whether the op on columns has a parameter for scratch, as every one on rows has
    gives: str = ""


_KINDS = {
    "sum": _Reduction(partial(_reduced, ufunc=np.add), "The sum of every {line}.", "sum", "", True, True),
    "max": _Reduction(partial(_reduced, ufunc=np.maximum), "The largest element of every {line}.", "max"),
    "min": _Reduction(
        partial(_reduced, ufunc=np.minimum), "The smallest element of every {line}.", "max", "its mirror image"
    ),
    "prod": _Reduction(partial(_reduced, ufunc=np.multiply), "The product of every {line}.", "sum", _NO_COST, True),
    "argmax": _Reduction(
        partial(_first_place, find=np.argmax),
        "The {other} of the first largest element of every {line}.",
        "max",
        "it finds the maximum, and where it stands",
        tmp_of_columns=True,
        gives=INT32.name,
    ),
    "argmin": _Reduction(
        partial(_first_place, find=np.argmin),
        "The {other} of the first smallest element of every {line}.",
        "max",
        "it finds the minimum, and where it stands",
        tmp_of_columns=True,
        gives=INT32.name,
    ),
}


_SCRATCH: dict[str, object] = {"tmp_tile": None}
_TREE: dict[str, object] = {"is_binary": False}  # whether it adds in pairs


def _reduction(prefix: str, axis: Axis, name: str) -> OpSpec:
    kind, rows = _KINDS[name], axis == "rows"
    line, other = ("row", "column") if rows else ("column", "row")
    return OpSpec(
        f"{prefix}_{name}",
        VECTOR,
        "reduction",
        kind.doc.format(line=line, other=other),
        cost=f"reduce.{prefix}_{kind.cost}",
        like=kind.like,
        numeric=partial(kind.numeric, axis=-1 if rows else -2),
        options=_SCRATCH | _TREE if (rows, name) == (False, "sum") else _SCRATCH if rows or kind.tmp_of_columns else {},
        axis=axis,
        gives=kind.gives,
        of_nothing=kind.of_nothing,
        scratch=rows,
        storage="separate" if rows else "free",
        roles=(OpRole.REDUCTION,),
    )


ROWS = tuple(_reduction("row", "rows", name) for name in _KINDS)
COLUMNS = tuple(_reduction("col", "columns", name) for name in _KINDS)
ROW_SUM, COL_SUM = ROWS[0], COLUMNS[0]
ALL = (*ROWS, *COLUMNS)
