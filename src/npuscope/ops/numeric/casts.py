"""Which casts are one instruction of the vector unit, and the chain of instructions for the others.

Tables and rule: pypto's LegalizeTileCast pass. The chain is the shortest one whose intermediates hold every value of
the target; among equals the one with most floats (the pass says "the float of the same width first", which for these
tables is the same). A pair without such a chain (int8 to fp32 on a2a3) is refused by the compiler: `hops` is empty.
"""

from __future__ import annotations

from functools import cache

from npuscope.ops.dtypes import BF16, FP16, FP32, INT8, INT16, INT32, INT64, UINT8, DataType

_NATIVE = {
    FP32: (FP16, BF16, INT16, INT32, INT64),
    FP16: (FP32, INT32, INT16, INT8, UINT8),
    BF16: (FP32, INT32),
    INT16: (FP16, FP32),
    INT32: (FP32, INT16, INT64, FP16),
    INT64: (FP32, INT32),
    UINT8: (FP16,),
    INT8: (FP16,),
}
_LONGEST = 4
_SIGNIFICAND = {FP32: 24, FP16: 11, BF16: 8}
_EXPONENT = {FP32: 8, FP16: 5, BF16: 8}


@cache
def hops(source: DataType, target: DataType) -> tuple[DataType, ...]:
    """The types a cast passes through, `target` last; (target,) is one instruction, () is no chain at all."""
    paths: list[tuple[DataType, ...]] = [(source,)]
    for _ in range(_LONGEST):
        paths = [(*path, step) for path in paths for step in _NATIVE.get(path[-1], ()) if step not in path]
        found = [path for path in paths if path[-1] is target]
        if found:
            return min(found, key=lambda path: sum(step.is_int for step in path))[1:]
        paths = [path for path in paths if _holds(path[-1], target)]
    return ()


def _value_bits(dtype: DataType) -> int:
    return 8 * dtype.bytes - _signed(dtype)


def _signed(dtype: DataType) -> bool:
    return not dtype.name.startswith("U")


def _holds(middle: DataType, target: DataType) -> bool:
    """Whether a chain may pass through `middle`: not when that provably loses values the target could have kept."""
    if target.is_float:
        return (
            middle.is_float and _SIGNIFICAND[middle] >= _SIGNIFICAND[target] and _EXPONENT[middle] >= _EXPONENT[target]
        )
    if middle.is_float:
        return _SIGNIFICAND[middle] >= _value_bits(target)
    return (_signed(middle) or not _signed(target)) and _value_bits(middle) >= _value_bits(target)
