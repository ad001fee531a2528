"""Ops of a tile with a column [M, 1] or a row [1, N] that is spread over it."""

from __future__ import annotations

import numpy as np

from npuscope.ops.numeric import elementwise as numeric
from npuscope.ops.spec import VECTOR, Axis, Numeric, OpSpec, Role

# fmt: off

# what is done -> kernel, cost, sentence, roles
_WITH: dict[str, tuple[Numeric, str, str, tuple[Role, ...]]] = {
    "add": (np.add, "op.vadd", "x + v", (Role.TERM,)),
    "sub": (np.subtract, "op.vadd", "x - v", (Role.TERM,)),
    "mul": (np.multiply, "op.vmul", "x · v", (Role.PRODUCT,)),
    "div": (numeric.div, "op.vdiv", "x / v", (Role.QUOTIENT,)),
    "max": (numeric.maximum, "op.vmax", "The larger of x and v", ()),
    "min": (numeric.minimum, "op.vmax", "The smaller of x and v", ()),
    "expdif": (numeric.expdif, "op.vexp", "e to the x - v", ()),
}


def _spread(prefix: str, axis: Axis, what: str) -> OpSpec:
    kernel, cost, sentence, roles = _WITH[what]
    vector = "a column [M, 1]" if axis == "rows" else "a row [1, N]"
    return OpSpec(
        f"{prefix}_expand_{what}", VECTOR, "spread", f"{sentence}, v {vector}.", cost=cost,
        like="as with a whole tile; what spreading v takes is not known", numeric=kernel, axis=axis, held=(1,),
        roles=roles,
    )


ROW_EXPAND = OpSpec(
    "row_expand", VECTOR, "spread", "A column [M, 1] over the columns of a tile of the target's shape.",
    cost="reduce.row_expand", axis="rows", held=(1,), roles=(Role.KEEPS_VALUES,),
)
COL_EXPAND = OpSpec(
    "col_expand", VECTOR, "spread", "A row [1, N] over the rows of a tile of the target's shape.", cost="op.vcopy",
    like="a copy of each row", axis="columns", held=(1,), roles=(Role.KEEPS_VALUES,),
)

ALL = (
    ROW_EXPAND, COL_EXPAND, *(_spread("row", "rows", what) for what in _WITH),
    *(_spread("col", "columns", what) for what in _WITH),
)
