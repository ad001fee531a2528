"""Single elements, and numbers that are computed on the way without an instruction of their own."""

from __future__ import annotations

from npuscope.ops.spec import OpSpec, Plane

_SCALAR: tuple[Plane, ...] = ("scalar",)

READ = OpSpec("read", _SCALAR, "own", "One element as a number.", cost="timing.scalar_read")
WRITE = OpSpec("write", _SCALAR, "own", "One element in place.", cost="timing.scalar_access")
DIM = OpSpec("dim", (), "own", "The extent of an axis at run time.")
MIN = OpSpec("min", (), "own", "The smaller of two numbers.", types="numbers")
MAX = OpSpec("max", (), "own", "The larger of two numbers.", types="numbers")
GET_BLOCK_IDX = OpSpec("get_block_idx", (), "own", "The block's number within its task.")
GET_BLOCK_NUM = OpSpec("get_block_num", (), "own", "How many blocks the task has.")
GET_SUBBLOCK_IDX = OpSpec("get_subblock_idx", (), "own", "Which of the two vector lanes this is.")

ALL = (READ, WRITE, DIM, MIN, MAX, GET_BLOCK_IDX, GET_BLOCK_NUM, GET_SUBBLOCK_IDX)
