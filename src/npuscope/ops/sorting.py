"""Ops that sort, gather and scatter along the rows of a tile."""

from __future__ import annotations

from npuscope.ops.spec import VECTOR, OpSpec, Role

# fmt: off

SORT32 = OpSpec(
    "sort32", VECTOR, "own", "Runs of 32 sorted descending, as (value, index) pairs side by side.", cost="op.vbitsort",
    types="FP32, whole indices",
)
MRGSORT = OpSpec(
    "mrgsort", VECTOR, "own", "Sorted runs of pairs merged, four at a time.", cost="op.vmrgsort4", types="FP32",
    storage="apart",
)
GATHER = OpSpec(
    "gather", VECTOR, "own", "The columns that a mask or an index names, side by side.", cost="op.vgather",
    spellings=("gather", "gather_mask", "tile.gather"),
)
SCATTER = OpSpec(
    "scatter", ("vector", "store"), "own", "Columns of x into those of dst that a mask or an index names.",
    cost="op.vgather", like="a gather the other way round", roles=(Role.NO_NEW_VALUE,),
)

ALL = (SORT32, MRGSORT, GATHER, SCATTER)
