"""The functions of ops with a regular form, made from their specs: check, record, compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuscope.ops.dtypes import BY_NAME, FP32, DataType
from npuscope.ops.numeric import rounding, storage
from npuscope.ops.numeric.arrays import Array
from npuscope.ops.spec import OpSpec
from npuscope.tile.calls.literals import literal, of_one, of_two
from npuscope.tile.fault import fault
from npuscope.tile.run.state import current
from npuscope.tile.values.checks import Scalar, broadcast, describe, is_number, promoted, shown
from npuscope.tile.values.tensors import Tile
from npuscope.tile.values.unknown import UNKNOWN


def made(spec: OpSpec) -> Callable[..., object]:
    """The function of an op with a regular form."""
    op = {"unary": unary, "binary": binary, "spread": spread, "reduction": reduction}[spec.form](spec)
    op.__name__ = op.__qualname__ = f"pl.{spec.name}"
    op.__doc__ = spec.doc
    return op


def binary(spec: OpSpec) -> Callable[..., object]:
    """An op on two tiles, or on a tile and a number."""
    name, kernel, bits = spec.name, spec.numeric, spec.bits
    assert kernel is not None

    def op(lhs: object, rhs: object, tmp: object = None, high_precision: bool = False) -> Tile | Scalar:
        run = current()
        swapped = is_number(lhs)
        number, other = (lhs, rhs) if swapped else (rhs, lhs)
        if is_number(number):
            if is_number(other):
                return of_two(spec, number, other)
            tile = run.tile(other, name)
            operands = (number, tile) if swapped else (tile, number)
            value, dtype = literal(number, tile.dtype, name)
            if bits and dtype.is_float:
                raise _no_bits(name, *operands)
            result = Tile(None, tile.shape, dtype, tile.valid)
            run.region(name)
            run.emit(spec, operands, result)
            if tile.array is not None and value is not UNKNOWN:
                array = tile.array if dtype is tile.dtype else tile.array.astype(np.float32)
                made = kernel(np.asarray(value, array.dtype), array) if swapped else kernel(array, value)
                result.array = rounded(made, dtype)
            return result
        left, right = run.tile(lhs, name), run.tile(rhs, name)
        shape, valid = broadcast(left, right, name)
        dtype = left.dtype if left.dtype is right.dtype else promoted(left.dtype, right.dtype, name)
        if bits and dtype.is_float:
            raise _no_bits(name, left, right)
        result = Tile(None, shape, dtype, valid)
        run.emit(spec, (left, right), result)
        if left.array is not None and right.array is not None:
            result.array = rounded(kernel(left.array, right.array), dtype)
        return result

    return op


def unary(spec: OpSpec) -> Callable[..., object]:
    """An op on one tile."""
    name, kernel, bits = spec.name, spec.numeric, spec.bits
    assert kernel is not None

    def op(input: object, tmp: object = None, high_precision: bool = False) -> Tile | Scalar:
        run = current()
        if is_number(input):
            return of_one(spec, input)
        tile = run.tile(input, name)
        if bits and tile.dtype.is_float:
            raise _no_bits(name, tile)
        result = Tile(None, tile.shape, tile.dtype, tile.valid)
        run.region(name)
        run.emit(spec, (tile,), result)
        if tile.array is not None:
            result.array = rounded(kernel(tile.array), tile.dtype)
        return result

    return op


def spread(spec: OpSpec) -> Callable[..., object]:
    """An op of [M, N] with a column [M, 1] (rows) or a row [1, N]; without a kernel the vector is spread itself."""
    name, kernel, rows = spec.name, spec.numeric, spec.axis == "rows"

    def op(lhs: object, rhs: object, tmp: object = None) -> Tile:
        run = current()
        left, right = run.tile(lhs, name), run.tile(rhs, name)
        run.region(name)
        want = (*left.shape[:-1], 1) if rows else (1, left.shape[-1])
        array = right.array
        if right.shape != want:
            count = left.shape[-2] if rows else left.shape[-1]
            held = 1
            for n in right.shape:
                held *= n
            if held != count:
                raise fault(f"pl.{name}: {describe(left)} needs a vector {list(want)}, not {describe(right)}")
            array = None if array is None else array.reshape(want)
        dtype = right.dtype if kernel is None else promoted(left.dtype, right.dtype, name)
        result = Tile(None, left.shape, dtype, left.valid)
        run.emit(spec, (left, right), result)
        if array is not None and (left.array is not None or kernel is None):
            if kernel is None:
                result.array = np.ascontiguousarray(np.broadcast_to(array, left.shape))
            else:
                result.array = rounded(kernel(left.array, array), dtype)
        return result

    return op


def reduction(spec: OpSpec) -> Callable[..., object]:
    """One element of each row or column, over the valid region."""
    name, kernel, rows = spec.name, spec.numeric, spec.axis == "rows"
    assert kernel is not None

    def op(input: object, tmp_tile: object = None) -> Tile:
        run = current()
        tile = run.tile(input, name)
        run.region(name)
        if len(tile.shape) < 2:
            raise fault(f"pl.{name} needs rows and columns, not {describe(tile)}")
        held = tile.valid or tile.shape
        if not (held[-1] if rows else held[-2]) and not spec.of_nothing:
            raise fault(f"pl.{name} of {describe(tile)}: there is nothing along this axis")
        shape = (*tile.shape[:-1], 1) if rows else (*tile.shape[:-2], 1, tile.shape[-1])
        dtype = BY_NAME[spec.gives] if spec.gives else tile.dtype
        valid = None
        if tile.valid is not None:
            valid = (*tile.valid[:-1], 1) if rows else (*tile.valid[:-2], 1, tile.valid[-1])
        result = Tile(None, shape, dtype, None if valid == shape else valid)
        run.emit(spec, (tile,), result)
        if tile.array is not None:
            array = tile.array
            if tile.valid is not None:
                array = array[..., : tile.valid[-1]] if rows else array[..., : tile.valid[-2], :]
            if array.shape[-1 if rows else -2] == 0 and not spec.of_nothing:
                result.array = storage.new(shape, dtype, storage.poison(dtype))  # the extreme of nothing
                return result
            out = kernel(array)
            result.array = out if spec.gives else rounding.round_to(out.astype(dtype.compute, copy=False), dtype)
        return result

    return op


def _no_bits(name: str, *operands: object) -> Exception:
    held = " and ".join(describe(x) if isinstance(x, Tile) else shown(x) for x in operands)
    return fault(f"pl.{name} works on the bits of whole numbers, not on {held}", "Cast it to INT32 first.")


def rounded(array: Array, dtype: DataType) -> Array:
    if dtype is FP32:
        return array if array.dtype == np.float32 else array.astype(np.float32)
    return rounding.round_to(array.astype(dtype.compute, copy=False), dtype)
