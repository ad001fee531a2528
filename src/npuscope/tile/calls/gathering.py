"""Ops that sort, gather and scatter within tiles, written by hand."""

from __future__ import annotations

import numpy as np

from npuscope.ops import elementwise, sorting, storage
from npuscope.ops.dtypes import FP32, INT32, UINT8, UINT16, UINT32, Array, DataType
from npuscope.ops.sorting import GATHER, GATHERB, HISTOGRAM, MRGSORT, PART_ARG, SCATTER, SORT32
from npuscope.tile.calls.functions import implements, literal
from npuscope.tile.calls.vector import known
from npuscope.tile.fault import fault
from npuscope.tile.run.state import current, store_box
from npuscope.tile.values import checks
from npuscope.tile.values.checks import broadcast, describe, dtype_of, flag, is_number, shown
from npuscope.tile.values.tensors import Tensor, Tile, window


@implements(SORT32)
def sort32(src: object, idx: object) -> Tile:
    run = current()
    values, numbers = run.tile(src, "sort32"), _indices(idx, "sort32")
    if broadcast(values, numbers, "sort32")[0] != values.shape:
        raise fault(f"pl.sort32: {describe(values)} with indices {describe(numbers)}")
    if values.shape[-1] % 32:
        raise fault(f"pl.sort32 sorts runs of 32: {describe(values)} has {values.shape[-1]} columns")
    result = run.result(SORT32, (values, numbers), (*values.shape[:-1], 2 * values.shape[-1]), FP32)
    if values.array is not None and numbers.array is not None:
        result.array = sorting.sort32(values.array, numbers.array.astype(np.uint32, copy=False))
    return result


@implements(MRGSORT)
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
    checks.check_scratch(tmp, "mrgsort")
    if block_len is not None:
        length = int(checks.index(block_len, "pl.mrgsort", "block_len="))
        if length <= 0 or length % 64:
            raise fault(f"pl.mrgsort: block_len {length} is not a multiple of 64")
        if length > max(64, first.size):
            raise fault(f"pl.mrgsort: block_len {length} is longer than {describe(first)}")
        if first.dtype is not FP32 or first.size % 2:
            raise fault(f"pl.mrgsort merges FP32 pairs, not {describe(first)}")
        result = run.result(MRGSORT, (first,), first.shape, first.dtype)
        if first.array is not None:
            result.array = sorting.mrgsort_blocks(first.array, length)
        return result
    tiles = [first, *(run.tile(value, "mrgsort") for value in (src1, src2, src3) if value is not None)]
    for tile in tiles:
        if tile.dtype is not FP32 or tile.shape[-1] % 2 or tile.size != tile.shape[-1]:
            raise fault(f"pl.mrgsort merges rows of FP32 pairs, not {describe(tile)}")
    result = run.result(MRGSORT, tuple(tiles), (1, sum(t.shape[-1] for t in tiles)), first.dtype)
    arrays = [t.array for t in tiles if t.array is not None]
    if len(arrays) == len(tiles):
        result.array = sorting.mrgsort_lists(arrays, exhausted)
    return result


@implements(GATHER, "gather")
def gather(
    input: object,
    dim: object = None,
    index: object = None,
    *,
    mask_pattern: object = None,
    output_dtype: DataType | None = None,
    kvalue: object = None,
    cmp_mode: object = "eq",
    out_cols: object = None,
    offset: object = 0,
    count_dtype: DataType = INT32,
) -> Tile | tuple[Tile, Tile]:
    """The columns a mask names, side by side; along `dim` the places that an index names, without it those of the whole
    tile; or which columns compare.
    """
    if kvalue is not None:
        return gather_compare(
            input, kvalue, cmp_mode=cmp_mode, offset=offset, out_cols=out_cols, count_dtype=count_dtype
        )
    if mask_pattern is not None:
        return gather_mask(input, mask_pattern, output_dtype=output_dtype)
    run = current()
    tile = run.tile(input, "gather")
    if dim is None or index is None:
        return gather_flat(tile, dim if index is None else index)
    numbers = _indices(index, "gather")
    rank, axis = len(tile.shape), int(checks.index(dim, "pl.gather", "dim="))
    fits = len(numbers.shape) == rank and -rank <= axis < rank
    axis %= rank
    others = [n for n in range(rank) if n != axis]
    if not fits or any(numbers.shape[n] > tile.shape[n] for n in others):
        raise fault(f"pl.gather: indices {describe(numbers)} for {describe(tile)} along dim={shown(dim)}")
    valid = numbers.valid or numbers.shape
    result = run.result(GATHER, (tile, numbers), numbers.shape, tile.dtype, numbers.valid)
    if tile.array is not None and numbers.array is not None:
        asked = numbers.array[window(valid)]
        _check_index(asked, tile.shape[axis], "places along this axis", tile)
        within = tuple(slice(None) if n == axis else slice(0, valid[n]) for n in range(rank))
        result.array = storage.new(numbers.shape, tile.dtype, storage.poison(tile.dtype))
        result.array[window(valid)] = np.take_along_axis(tile.array[within], asked.astype(np.int64), axis)
    return result


_COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")


@implements(GATHER, "gather_compare")
def gather_compare(
    src: object,
    kvalue: object,
    tmp: object = None,
    *,
    cmp_mode: object = "eq",
    offset: object = 0,
    out_cols: object = None,
    count_dtype: DataType = INT32,
) -> tuple[Tile, Tile]:
    """Of each row the columns that compare with a number, counted from `offset`, and how many they are."""
    run = current()
    tile, number = run.tile(src, "gather_compare"), cmp_mode
    checks.check_scratch(tmp, "gather_compare")
    if number in _COMPARES:
        number = _COMPARES.index(str(cmp_mode))
    if type(number) is not int or not 0 <= number < len(_COMPARES):
        raise fault(f"pl.gather_compare: cmp_mode={shown(cmp_mode)}", f"Use one of {', '.join(_COMPARES)}.")
    if len(tile.shape) != 2 or not is_number(kvalue) or out_cols is None:
        raise fault(f"pl.gather_compare of {describe(tile)} needs rows, a number and out_cols=")
    wide = int(checks.index(out_cols, "pl.gather_compare", "out_cols="))
    first = int(checks.index(offset, "pl.gather_compare", "offset="))
    counted = dtype_of(count_dtype, "gather_compare")
    rows = tile.shape[0]
    numbers = run.result(GATHER, (tile,), (rows, wide), INT32)
    counts = run.result(GATHER, (tile,), (1, rows), counted)
    value = known(literal(kvalue, tile.dtype, "gather_compare")[0])
    if tile.array is not None and value is not None:
        found = elementwise.cmp(tile.array, value, number) != 0
        if tile.valid is not None:
            found[:, tile.valid[1] :] = False
        numbers.array = storage.new((rows, wide), INT32, storage.poison(INT32))
        for row, places in enumerate(map(np.flatnonzero, found)):
            numbers.array[row, : len(places)] = places[:wide] + first
        counts.array = found.sum(axis=1, dtype=np.int64).astype(counted.compute).reshape(1, rows)
    return numbers, counts


@implements(GATHER, "gather_mask")
def gather_mask(src: object, mask_pattern: object, *, output_dtype: DataType | None = None) -> Tile:
    """The columns that a mask names, side by side; of 4 bytes they can be read as another type."""
    run = current()
    tile = run.tile(src, "gather")
    dtype = tile.dtype if output_dtype is None else dtype_of(output_dtype, "gather")
    if dtype is not tile.dtype and (dtype.bytes != 4 or tile.dtype.bytes != 4):
        raise fault(f"pl.gather: {describe(tile)} read as {dtype}", "Only 4-byte types can be read as each other.")
    pattern, kept = _columns(mask_pattern, tile, "gather")
    result = run.result(GATHER, (tile,), (*tile.shape[:-1], kept), dtype)
    if tile.array is not None:
        view = None if dtype is tile.dtype else dtype.compute
        result.array = sorting.gather_mask(tile.array, pattern, view)
    return result


@implements(GATHER, "tile.gather")
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
        return gather_mask(src, mask_pattern, output_dtype=output_dtype)
    run = current()
    checks.check_scratch(tmp, "tile.gather")
    tile, numbers = run.tile(src, "tile.gather"), _indices(indices, "tile.gather")
    result = run.result(GATHER, (tile, numbers), numbers.shape, tile.dtype, numbers.valid)
    if tile.array is not None and numbers.array is not None:
        asked = numbers.array[window(numbers.valid or numbers.shape)]
        _check_index(asked, tile.array.size, "elements", tile)
        result.array = storage.new(numbers.shape, tile.dtype, storage.poison(tile.dtype))
        result.array[window(numbers.valid or numbers.shape)] = tile.array.reshape(-1).take(asked.astype(np.int64))
    return result


@implements(GATHERB)
def gatherb(src: object, offset: object, *, output_dtype: DataType | None = None) -> Tile:
    run = current()
    tile, offsets = run.tile(src, "gatherb"), _indices(offset, "gatherb")
    dtype = tile.dtype if output_dtype is None else dtype_of(output_dtype, "gatherb")
    if offsets.dtype is not UINT32 or offsets.shape[-1] % 8:
        raise fault(f"pl.gatherb: offsets are rows of UINT32, eight or a multiple of it, not {describe(offsets)}")
    shape = (*offsets.shape[:-1], offsets.shape[-1] * 32 // dtype.bytes)
    valid = None if offsets.valid is None else (*offsets.valid[:-1], offsets.valid[-1] * 32 // dtype.bytes)
    result = run.result(GATHERB, (tile, offsets), shape, dtype, valid)
    if tile.array is not None and offsets.array is not None:
        asked = offsets.array[window(offsets.valid or offsets.shape)]
        if np.any(asked % 32) or np.max(asked, initial=0) > tile.size * tile.dtype.bytes - 32:
            raise fault(f"pl.gatherb: an offset is no multiple of 32 bytes within {describe(tile)}")
        held = np.empty(tile.shape, tile.dtype.storage)
        storage.store(held, tile.array, tile.dtype)
        assert dtype.storage is not None
        blocks = np.zeros(offsets.shape, np.int64)
        blocks[window(offsets.valid or offsets.shape)] = asked
        picked = sorting.gather_blocks(held, blocks)
        result.array = storage.load(picked.view(dtype.storage), dtype)
    return result


@implements(SCATTER, "scatter_mask")
def scatter_mask(dst: object, src: object, mask_pattern: object) -> Tensor | Tile:
    return scatter(src, mask_pattern=mask_pattern, dst=dst)


@implements(SCATTER, "tile.scatter")
def scatter_flat(
    dst: object = None,
    src: object = None,
    indexes: object = None,
    index: object = None,
    *,
    dim: object = None,
    mask_pattern: object = None,
    input: object = None,
) -> Tensor | Tile:
    """The tile form: scatter(dst, src, indexes), indexes counted over the whole tile; or as `pl.scatter`."""
    if mask_pattern is not None or dim is not None or index is not None or is_number(src):
        if mask_pattern is not None:
            return scatter(input if src is None else src, mask_pattern=mask_pattern, dst=dst)
        if is_number(src):  # by place: scatter(input, dim, index, src)
            return scatter(dst, src, indexes, index)
        return scatter(dst if input is None else input, dim, index if indexes is None else indexes, src)
    run = current()
    target, source, numbers = run.tile(dst, "scatter"), run.tile(src, "scatter"), _indices(indexes, "scatter")
    if numbers.shape != source.shape or source.dtype is not target.dtype:
        raise fault(f"pl.tile.scatter: {describe(source)} at {describe(numbers)} into {describe(target)}")
    result = run.result(SCATTER, (target, numbers, source), target.shape, target.dtype, target.valid)
    if target.array is not None and numbers.array is not None and source.array is not None:
        inside = window(source.valid or source.shape)
        _check_index(numbers.array[inside], target.size, "elements", target)
        result.array = target.array.copy()
        result.array.reshape(-1)[numbers.array[inside].astype(np.int64)] = source.array[inside]
    return result


@implements(SCATTER, "scatter")
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
    if mask_pattern is None:
        return _scatter_index(input, -1 if dim is None else dim, index, src)
    run = current()
    tile, target = run.tile(input, "scatter"), run.tile(dst, "scatter")
    pattern, marked = _columns(mask_pattern, target, "scatter")
    if tile.shape != (*target.shape[:-1], marked):
        raise fault(f"pl.scatter: {describe(tile)} does not fill the marked columns of {describe(target)}")
    result = run.result(SCATTER, (tile, target), target.shape, target.dtype)
    if tile.array is not None and target.array is not None:
        result.array = sorting.scatter_mask(target.array, tile.array, pattern)
    if isinstance(dst, Tensor):
        return store_box(run, result, dst, [0] * len(dst.shape), op=SCATTER)
    return result


def _scatter_index(x: object, dim: object, index: object, src: object) -> Tile:
    run = current()
    target, numbers, source = run.tile(x, "scatter"), _indices(index, "scatter"), run.tile(src, "scatter")
    _check_last(dim, target, "scatter")
    if numbers.shape != source.shape or source.shape[:-1] != target.shape[:-1]:
        about = f"{describe(source)} at the indices {describe(numbers)}"
        raise fault(f"pl.scatter: {about} does not fit {describe(target)}")
    result = run.result(SCATTER, (target, numbers, source), target.shape, target.dtype)
    if target.array is not None and numbers.array is not None and source.array is not None:
        _check_index(numbers.array, target.shape[-1], "columns", target)
        result.array = target.array.copy()
        np.put_along_axis(result.array, numbers.array.astype(np.int64), source.array, axis=-1)
    return result


def _part_arg(spelling: str, first_wins: np.ufunc) -> None:
    """Of two tiles, each valid in part: where both are the one that wins and its index, elsewhere the only one."""

    def op(src0: object, src1: object, idx0: object, idx1: object) -> tuple[Tile, Tile]:
        run = current()
        one, other = run.tile(src0, spelling), run.tile(src1, spelling)
        places = _indices(idx0, spelling), _indices(idx1, spelling)
        tiles = (one, other, *places)
        if len({tile.shape for tile in tiles}) > 1 or len({tile.dtype for tile in tiles}) > 2:
            raise fault(f"pl.{spelling}: {', '.join(map(describe, tiles))} differ in shape or type")
        whole = tuple(map(max, one.valid or one.shape, other.valid or other.shape))
        value, index = (run.result(PART_ARG, tiles, one.shape, tile.dtype, whole) for tile in (one, places[0]))
        arrays = [tile.array for tile in tiles if tile.array is not None]
        if len(arrays) == len(tiles):
            here, there = (np.zeros(one.shape, bool) for _ in range(2))
            here[window(one.valid or one.shape)] = there[window(other.valid or other.shape)] = True
            first = here & (~there | first_wins(arrays[0], arrays[1]))
            value.array, index.array = np.where(first, *arrays[:2]), np.where(first, *arrays[2:])
        return value, index

    implements(PART_ARG, spelling)(op)


_part_arg("part_argmax", np.greater_equal)
_part_arg("part_argmin", np.less_equal)


@implements(HISTOGRAM)
def histogram(src: object, idx: object, *, byte: object = 0) -> Tile:
    """Of each row the values whose higher bytes are those of the index (of UINT16 a column with the upper byte for each
    row, of UINT32 a row for each higher byte, the highest first), counted by their `byte`, 0 the lowest.
    """
    run, at = current(), int(checks.index(byte, "pl.histogram", "byte="))
    tile, filters = run.tile(src, "histogram"), _indices(idx, "histogram")
    width = tile.dtype.bytes
    if tile.dtype not in (UINT16, UINT32) or len(tile.shape) != 2 or not 0 <= at < width:
        raise fault(f"pl.histogram of byte {shown(byte)} of {describe(tile)}")
    if filters.dtype is not UINT8 or (filters.shape[0] < width - 1 - at if width > 2 else filters.size < tile.shape[0]):
        raise fault(f"pl.histogram: {describe(filters)} holds too few bytes for {describe(tile)}")
    valid = tile.valid or tile.shape
    result = run.result(HISTOGRAM, (tile, filters), (tile.shape[0], 256), UINT32, (valid[0], 256))
    if tile.array is not None and filters.array is not None:
        values = tile.array[window(valid)].astype(np.int64)
        wanted = filters.array.astype(np.int64)
        chosen = np.ones(values.shape, bool)
        for above in range(at + 1, width):
            one = wanted.reshape(-1)[: valid[0], None] if width == 2 else wanted[width - 1 - above, 0]
            chosen &= (values >> (8 * above)) & 255 == one
        counts = np.zeros(result.shape, np.uint32)
        for row, (numbers, kept) in enumerate(zip((values >> (8 * at)) & 255, chosen, strict=True)):
            counts[row] = np.cumsum(np.bincount(numbers[kept], minlength=256))
        result.array = counts
    return result


def _indices(value: object, op: str) -> Tile:
    """A tile of whole numbers, for a fraction would be cut off."""
    tile = current().tile(value, op)
    if not tile.dtype.is_int:
        raise fault(f"pl.{op}: indices must be whole numbers, not {describe(tile)}")
    return tile


def _columns(pattern: object, tile: Tile, op: str) -> tuple[int, int]:
    """A mask pattern, and how many columns of a tile it names."""
    number = int(checks.index(pattern, f"pl.{op}", "mask_pattern="))
    if not 1 <= number <= 7:
        raise fault(f"pl.{op}: no mask pattern {number}", "Use one of pl.tile.MaskPattern.…, 1 to 7.")
    step = 1 if number == 7 else 2 if number < 3 else 4
    if tile.shape[-1] % step:
        raise fault(f"pl.{op}: a mask of every {step} columns for {describe(tile)}")
    return number, tile.shape[-1] // step


def _check_last(dim: object, tile: Tile, op: str) -> None:
    """Only the last axis can be gathered or scattered along."""
    if checks.index(dim, f"pl.{op}", "dim=") not in (-1, len(tile.shape) - 1):
        raise fault(f"pl.{op}: dim={shown(dim)} of {describe(tile)}", "Only the last axis, dim=-1.")


def _check_index(index: Array, count: int, what: str, tile: Tile) -> None:
    if index.size and (np.min(index) < 0 or np.max(index) >= count):
        raise fault(f"pl.gather: an index lies outside the {count} {what} of {describe(tile)}")
