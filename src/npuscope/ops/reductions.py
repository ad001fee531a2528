"""Ops that make one element of each row [M, 1] or of each column [1, N]."""

from __future__ import annotations

from npuscope.ops.numeric import reduce
from npuscope.ops.spec import VECTOR, Numeric, OpSpec, Role

# fmt: off


def _of_rows(
    name: str, numeric: Numeric, doc: str, cost: str, like: str = "", gives: str = "", of_nothing: bool = False
) -> OpSpec:
    """Their scratch is a tile as large as their operand, and they still read while they write."""
    return OpSpec(
        name, VECTOR, "reduction", doc, cost=cost, like=like, numeric=numeric, axis="rows", gives=gives,
        of_nothing=of_nothing, scratch=True, storage="apart", roles=(Role.REDUCTION,),
    )


def _of_columns(
    name: str, numeric: Numeric, doc: str, cost: str, like: str = "", gives: str = "", of_nothing: bool = False
) -> OpSpec:
    return OpSpec(
        name, VECTOR, "reduction", doc, cost=cost, like=like, numeric=numeric, axis="columns", gives=gives,
        of_nothing=of_nothing, roles=(Role.REDUCTION,),
    )


ROW_SUM = _of_rows("row_sum", reduce.row_sum, "The sum of every row.", "reduce.row_sum", of_nothing=True)
ROW_MAX = _of_rows("row_max", reduce.row_max, "The largest element of every row.", "reduce.row_max")
ROW_MIN = _of_rows(
    "row_min", reduce.row_min, "The smallest element of every row.", "reduce.row_max", "its mirror image",
)
ROW_PROD = _of_rows(
    "row_prod", reduce.row_prod, "The product of every row.", "reduce.row_sum", "as a sum: no cost of it is public",
    of_nothing=True,
)
ROW_ARGMAX = _of_rows(
    "row_argmax", reduce.row_argmax, "The column of the first largest element of every row.", "reduce.row_max",
    "it finds the maximum, and where it stands", gives="INT32",
)
ROW_ARGMIN = _of_rows(
    "row_argmin", reduce.row_argmin, "The column of the first smallest element of every row.", "reduce.row_max",
    "it finds the minimum, and where it stands", gives="INT32",
)
COL_SUM = _of_columns("col_sum", reduce.col_sum, "The sum of every column.", "reduce.col_sum", of_nothing=True)
COL_MAX = _of_columns("col_max", reduce.col_max, "The largest element of every column.", "reduce.col_max")
COL_MIN = _of_columns(
    "col_min", reduce.col_min, "The smallest element of every column.", "reduce.col_max", "its mirror image",
)
COL_PROD = _of_columns(
    "col_prod", reduce.col_prod, "The product of every column.", "reduce.col_sum", "as a sum: no cost of it is public",
    of_nothing=True,
)
COL_ARGMAX = _of_columns(
    "col_argmax", reduce.col_argmax, "The row of the first largest element of every column.", "reduce.col_max",
    "it finds the maximum, and where it stands", gives="INT32",
)
COL_ARGMIN = _of_columns(
    "col_argmin", reduce.col_argmin, "The row of the first smallest element of every column.", "reduce.col_max",
    "it finds the minimum, and where it stands", gives="INT32",
)

ALL = (
    ROW_SUM, ROW_MAX, ROW_MIN, ROW_PROD, ROW_ARGMAX, ROW_ARGMIN, COL_SUM, COL_MAX, COL_MIN, COL_PROD, COL_ARGMAX,
    COL_ARGMIN,
)
