"""Sorting, gathering and scattering."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from npuscope.ops.dtypes import FP32, DataType
from npuscope.ops.numeric import sorting
from npuscope.ops.numeric.arrays import Array
from npuscope.ops.sorting import GATHER, MRGSORT, SCATTER, SORT32
from npuscope.ops.spec import OpSpec
from npuscope.tile.calls.gm import store_box
from npuscope.tile.calls.own import own
from npuscope.tile.fault import fault
from npuscope.tile.run.state import current
from npuscope.tile.values.checks import broadcast, describe, dtype_of, flag, shown
from npuscope.tile.values.checks import index as whole
from npuscope.tile.values.tensors import Tensor, Tile


def _made(spec: OpSpec, operands: Sequence[Tile], shape: tuple[int, ...], dtype: DataType) -> Tile:
    run = current()
    run.region(spec.name)
    result = Tile(None, shape, dtype)
    run.emit(spec, tuple(operands), result)
    return result


def _whole(tile: Tile, op: str) -> Tile:
    """Indices: whole numbers, for a fraction would be cut off."""
    if not tile.dtype.is_int:
        raise fault(f"pl.{op}: indices must be whole numbers, not {describe(tile)}")
    return tile


def _pairs(tile: Tile) -> Tile:
    """A sorted list: one row of pairs."""
    if tile.dtype is not FP32 or tile.shape[-1] % 2 or math.prod(tile.shape) != tile.shape[-1]:
        raise fault(f"pl.mrgsort merges rows of FP32 pairs, not {describe(tile)}")
    return tile


def _columns(pattern: object, tile: Tile, op: str) -> tuple[int, int]:
    """A mask pattern, and how many columns of a tile it names."""
    number = int(whole(pattern, f"pl.{op}", "mask_pattern="))
    if not 1 <= number <= 7:
        raise fault(f"pl.{op}: no mask pattern {number}", "Use one of pl.tile.MaskPattern.…, 1 to 7.")
    step = 1 if number == 7 else 2 if number < 3 else 4
    if tile.shape[-1] % step:
        raise fault(f"pl.{op}: a mask of every {step} columns for {describe(tile)}")
    return number, tile.shape[-1] // step


@own(SORT32)
def sort32(src: object, idx: object) -> Tile:
    """Runs of 32 sorted descending, as (value, index) pairs side by side."""
    run = current()
    values, numbers = run.tile(src, "sort32"), _whole(run.tile(idx, "sort32"), "sort32")
    if broadcast(values, numbers, "sort32")[0] != values.shape:
        raise fault(f"pl.sort32: {describe(values)} with indices {describe(numbers)}")
    if values.shape[-1] % 32:
        raise fault(f"pl.sort32 sorts runs of 32: {describe(values)} has {values.shape[-1]} columns")
    result = _made(SORT32, (values, numbers), (*values.shape[:-1], 2 * values.shape[-1]), FP32)
    if values.array is not None and numbers.array is not None:
        result.array = sorting.sort32(values.array, numbers.array.astype(np.uint32, copy=False))
    return result


@own(MRGSORT)
def mrgsort(
    src0: object,
    src1: object = None,
    src2: object = None,
    src3: object = None,
    tmp: object = None,
    exhausted: bool = False,
    *,
    block_len: object = None,
) -> Tile:
    """Merges sorted runs of `block_len` lanes four by four, or two to four sorted lists into one."""
    run = current()
    first = run.tile(src0, "mrgsort")
    exhausted = flag(exhausted, "mrgsort", "exhausted=")
    if block_len is not None:
        length = int(whole(block_len, "pl.mrgsort", "block_len="))
        if length <= 0 or length % 64:
            raise fault(f"pl.mrgsort: block_len {length} is not a multiple of 64")
        if length > max(64, math.prod(first.shape)):
            raise fault(f"pl.mrgsort: block_len {length} is longer than {describe(first)}")
        if first.dtype is not FP32 or math.prod(first.shape) % 2:
            raise fault(f"pl.mrgsort merges FP32 pairs, not {describe(first)}")
        result = _made(MRGSORT, (first,), first.shape, first.dtype)
        if first.array is not None:
            result.array = sorting.mrgsort_blocks(first.array, length)
        return result
    tiles = [first, *(run.tile(value, "mrgsort") for value in (src1, src2, src3) if value is not None)]
    for tile in tiles:
        _pairs(tile)
    result = _made(MRGSORT, tiles, (1, sum(t.shape[-1] for t in tiles)), first.dtype)
    arrays = [t.array for t in tiles]
    if all(array is not None for array in arrays):
        result.array = sorting.mrgsort_lists([array for array in arrays if array is not None], exhausted)
    return result


@own(GATHER, "gather")
def gather(
    input: object,
    dim: object = None,
    index: object = None,
    *,
    mask_pattern: object = None,
    output_dtype: DataType | None = None,
) -> Tile:
    """The columns a mask names, side by side; or per row the columns an index names."""
    run = current()
    tile = run.tile(input, "gather")
    if mask_pattern is not None:
        dtype = tile.dtype if output_dtype is None else dtype_of(output_dtype, "gather")
        if dtype is not tile.dtype and (dtype.bytes != 4 or tile.dtype.bytes != 4):
            raise fault(f"pl.gather: {describe(tile)} read as {dtype}", "Only 4-byte types can be read as each other.")
        pattern, kept = _columns(mask_pattern, tile, "gather")
        result = _made(GATHER, (tile,), (*tile.shape[:-1], kept), dtype)
        if tile.array is not None:
            view = None if dtype is tile.dtype else dtype.compute
            result.array = sorting.gather_mask(tile.array, pattern, view)
        return result
    if index is None:
        dim, index = -1, dim
    _last(dim, tile, "gather")
    numbers = _whole(run.tile(index, "gather"), "gather")
    if len(tile.shape) != 2 or len(numbers.shape) != 2 or numbers.shape[0] > tile.shape[0]:
        raise fault(f"pl.gather: indices {describe(numbers)} for {describe(tile)}")
    result = _made(GATHER, (tile, numbers), numbers.shape, tile.dtype)
    if tile.array is not None and numbers.array is not None:
        _check_index(numbers.array, tile.shape[-1], "columns", tile)
        result.array = sorting.gather(tile.array, numbers.array.astype(np.int64))
    return result


def _last(dim: object, tile: Tile, op: str) -> None:
    """Only the last axis can be gathered or scattered along."""
    if whole(dim, f"pl.{op}", "dim=") not in (-1, len(tile.shape) - 1):
        raise fault(f"pl.{op}: dim={shown(dim)} of {describe(tile)}", "Only the last axis, dim=-1.")


@own(GATHER, "tile.gather")
def gather_flat(
    src: object,
    indices: object = None,
    tmp: object = None,
    *,
    mask_pattern: object = None,
    output_dtype: DataType | None = None,
) -> Tile:
    """The tile form: gather(source, indices, scratch), indices counted over the whole tile, or by mask."""
    if mask_pattern is not None:
        return gather(src, mask_pattern=mask_pattern, output_dtype=output_dtype)
    run = current()
    tile, numbers = run.tile(src, "tile.gather"), _whole(run.tile(indices, "tile.gather"), "tile.gather")
    result = _made(GATHER, (tile, numbers), numbers.shape, tile.dtype)
    if tile.array is not None and numbers.array is not None:
        _check_index(numbers.array, tile.array.size, "elements", tile)
        result.array = sorting.gather_flat(tile.array, numbers.array.astype(np.int64))
    return result


def _check_index(index: Array, count: int, what: str, tile: Tile) -> None:
    if index.size and (np.min(index) < 0 or np.max(index) >= count):
        raise fault(f"pl.gather: an index lies outside the {count} {what} of {describe(tile)}")


@own(GATHER, "gather_mask")
def gather_mask(src: object, mask_pattern: int, *, output_dtype: DataType | None = None) -> Tile:
    return gather(src, mask_pattern=mask_pattern, output_dtype=output_dtype)


@own(SCATTER)
def scatter(
    input: object,
    dim: object = None,
    index: object = None,
    src: object = None,
    *,
    mask_pattern: object = None,
    dst: object = None,
) -> Tensor | Tile:
    """Columns of x into the marked columns of dst; the others keep what they hold."""
    run = current()
    if mask_pattern is None:
        return _scatter_index(input, -1 if dim is None else dim, index, src)
    tile = run.tile(input, "scatter")
    target = run.tile(dst, "scatter")
    pattern, marked = _columns(mask_pattern, target, "scatter")
    if tile.shape != (*target.shape[:-1], marked):
        raise fault(f"pl.scatter: {describe(tile)} does not fill the marked columns of {describe(target)}")
    result = _made(SCATTER, (tile, target), target.shape, target.dtype)
    if tile.array is not None and target.array is not None:
        result.array = sorting.scatter_mask(target.array, tile.array, pattern)
    if isinstance(dst, Tensor):
        return store_box(run, result, dst, [0] * len(dst.shape), op=SCATTER)
    return result


def _scatter_index(x: object, dim: object, index: object, src: object) -> Tile:
    run = current()
    target, numbers, source = run.tile(x, "scatter"), run.tile(index, "scatter"), run.tile(src, "scatter")
    _last(dim, target, "scatter")
    if _whole(numbers, "scatter").shape != source.shape or source.shape[:-1] != target.shape[:-1]:
        raise fault(
            f"pl.scatter: {describe(source)} at the indices {describe(numbers)} does not fit {describe(target)}"
        )
    result = _made(SCATTER, (target, numbers, source), target.shape, target.dtype)
    if target.array is not None and numbers.array is not None and source.array is not None:
        _check_index(numbers.array, target.shape[-1], "columns", target)
        result.array = target.array.copy()
        np.put_along_axis(result.array, numbers.array.astype(np.int64), source.array, axis=-1)
    return result
