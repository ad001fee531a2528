"""Single elements, and numbers that are computed on the way without an instruction of their own."""

from __future__ import annotations

from npuscope.ops.spec import OpSpec, Plane, Role

# fmt: off

_SCALAR: tuple[Plane, ...] = ("scalar",)

READ = OpSpec(
    "read", _SCALAR, "own", "One element as a number.", cost="timing.scalar_read",
    roles=(Role.NUMBER, Role.NO_NEW_VALUE),
)
WRITE = OpSpec(
    "write", _SCALAR, "own", "One element in place.", cost="timing.scalar_access", roles=(Role.NO_NEW_VALUE,),
)
DIM = OpSpec("dim", (), "own", "The extent of an axis at run time.", roles=(Role.NO_NEW_VALUE,))
MIN = OpSpec("min", (), "own", "The smaller of two numbers.", types="numbers")
MAX = OpSpec("max", (), "own", "The larger of two numbers.", types="numbers")
GET_BLOCK_IDX = OpSpec("get_block_idx", (), "own", "The block's number within its task.", roles=(Role.NUMBER,))
GET_BLOCK_NUM = OpSpec("get_block_num", (), "own", "How many blocks the task has.")
GET_SUBBLOCK_IDX = OpSpec("get_subblock_idx", (), "own", "Which of the two vector lanes this is.", roles=(Role.NUMBER,))

ALL = (READ, WRITE, DIM, MIN, MAX, GET_BLOCK_IDX, GET_BLOCK_NUM, GET_SUBBLOCK_IDX)
