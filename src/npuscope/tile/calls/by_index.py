"""Ops that move rows or elements by an index, which a core does as a loop: it reads an index, then moves what it names.

They are written in the language's own ops, so a record has the loop with its single reads and transfers, and time and
rules see what the chip does. On a5 the vector unit gathers into Vec by itself; here it is the loop there, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import cast

from npuscope.ops.dtypes import FP16, FP32, INT16, INT32, DataType
from npuscope.ops.shaping import EXTRACT
from npuscope.ops.sorting import MGATHER, MSCATTER, PAGED_GATHER, SCATTER_UPDATE
from npuscope.tile.calls.functions import implements, scalar_max, scalar_min
from npuscope.tile.calls.scalars import read
from npuscope.tile.calls.shaping import reshape, slice
from npuscope.tile.calls.transfer import assemble, create_tile, gather_row, move, store
from npuscope.tile.calls.vector import expands
from npuscope.tile.enums import MemorySpace
from npuscope.tile.fault import fault
from npuscope.tile.run.loops import range_
from npuscope.tile.run.state import current
from npuscope.tile.values import checks
from npuscope.tile.values.checks import Scalar, describe, flag, is_number, member, shape_of, shown
from npuscope.tile.values.lanes import Lane, Unknown, Whole
from npuscope.tile.values.tensors import Tensor, Tile

_OUTSIDE = ("undefined", "clamp", "wrap", "zero")
_UNITS = ("row", "elem")
_SCATTERED = (FP16, FP32, INT16, INT32)


@implements(MGATHER)
def mgather(
    mem: object,
    idx: object,
    coalesce: object = "row",
    *,
    gather_oob: object = "undefined",
    target_memory: object = MemorySpace.Vec,
    scratch: object = None,
    valid_shape: Sequence[Whole] | None = None,
) -> Tile:
    """Rows (or elements) of a GM tensor that an index names, side by side in a tile."""
    if not isinstance(mem, Tensor) or len(mem.shape) < 1:
        raise fault(f"pl.mgather reads a GM tensor, not {describe(mem)}")
    numbers = _index(idx, "mgather", INT32)
    rows = _choice(coalesce, _UNITS, "mgather", "coalesce") == "row"
    outside = _choice(gather_oob, _OUTSIDE, "mgather", "gather_oob")
    space = member(target_memory, MemorySpace, "mgather", "target_memory")
    if space is MemorySpace.Mat and not rows and scratch is None:
        raise fault("pl.mgather of elements into Mat needs scratch=, a GM tensor of the result's size")
    width = mem.shape[-1] if rows else 1
    source = _rows(mem, width)
    if rows and max(numbers.shape) != numbers.size:
        raise fault(f"pl.mgather: rows are named by a row or a column of indices, not {describe(numbers)}")
    shape = (numbers.size, width) if rows else numbers.shape
    named = numbers.valid or numbers.shape
    valid = shape_of(valid_shape) if valid_shape is not None else (math.prod(named), width) if rows else named
    if space is MemorySpace.Mat and (shape[0] % 16 or shape[-1] * mem.dtype.bytes % 32):
        raise fault(f"pl.mgather of {list(shape)} {mem.dtype} into Mat", "Rows in sixteens, each of whole 32 bytes.")
    if len(valid) != len(shape) or any(n > most for n, most in zip(valid, shape, strict=True)):
        raise fault(f"pl.mgather: valid_shape={list(valid)} of a tile {list(shape)}")
    tile = create_tile(shape, mem.dtype, space)
    if outside == "zero":
        tile = expands(tile, 0)
    inner = 1 if rows else valid[-1]  # only elements that are valid are named
    for at in _turns(valid[0] if rows else math.prod(valid)):
        place = [at // inner, at % inner]
        where = _inside(read(numbers, at if rows else place), source.shape[0], outside)
        if where is not None:
            gather_row(tile, source, place, [where, 0], [1, valid[1] if rows else 1])
    if valid != shape:
        return cast(Tile, slice(tile, list(shape), [0, 0], valid_shape=list(valid)))
    return tile


@implements(MSCATTER)
def mscatter(src: object, idx: object, output_tensor: object) -> Tensor:
    """Each element of a tile to the place in a GM tensor that its index names, counted over the whole tensor."""
    if not isinstance(output_tensor, Tensor):
        raise fault(f"pl.mscatter writes to a GM tensor, not {describe(output_tensor)}")
    tile, numbers = current().tile(src, "mscatter"), _index(idx, "mscatter", INT32)
    if tile.dtype not in _SCATTERED or output_tensor.dtype is not tile.dtype:
        raise fault(
            f"pl.mscatter of {describe(tile)} into {describe(output_tensor)}",
            "Both are of one type: FP16, FP32, INT16 or INT32.",
        )
    current().recorder.notice("a5", "pl.mscatter is for a5 alone: what a2a3 does with it is not settled in public")
    if tile.shape != numbers.shape:
        raise fault(f"pl.mscatter: {describe(tile)} with indices {describe(numbers)}")
    target = reshape(output_tensor, [1, output_tensor.size])
    columns = tile.shape[-1]
    for at in _turns(tile.size):
        place: list[Whole] = [at // columns, at % columns] if len(tile.shape) == 2 else [at]
        store(slice(tile, [1] * len(tile.shape), place), [0, _known(read(numbers, at))], target)
    return output_tensor


@implements(PAGED_GATHER)
def paged_gather(
    src: object,
    indices: object,
    block_table: object,
    block_size: Whole,
    size: Whole,
    max_indices: Whole,
    *,
    space: object = MemorySpace.Mat,
    col_off: Whole = 0,
    is_trans: bool = False,
    is_b_matrix: bool = False,
) -> Tile:
    """Rows of a paged cache: index i lies in the page that the table names, `block_size` rows to a page."""
    for name, value in (("src", src), ("indices", indices), ("block_table", block_table)):
        if not isinstance(value, Tensor):
            raise fault(f"pl.paged_gather: {name} is a GM tensor, not {describe(value)}")
    assert isinstance(src, Tensor)
    assert isinstance(indices, Tensor)
    page, width, most = (int(checks.index(n, "pl.paged_gather", "a size")) for n in (block_size, size, max_indices))
    across = flag(is_trans, "paged_gather", "is_trans=")
    as_right = flag(is_b_matrix, "paged_gather", "is_b_matrix=")
    shape = [width, most] if across else [most, width]
    place = member(space, MemorySpace, "paged_gather", "space")
    tile = create_tile(shape, src.dtype, place, transpose=across and place is MemorySpace.Mat)
    source = _rows(src, src.shape[-1])
    for k in _turns(min(indices.size, most)):
        i = _known(read(indices, k))
        row = _known(read(block_table, i // page)) * page + i % page
        gather_row(tile, source, [0, k] if across else [k, 0], [row, col_off], [1, width], across)
    if as_right:
        current().region("paged_gather").right_operands.append(tile)
    return tile


@implements(SCATTER_UPDATE)
def scatter_update(
    input: object, *places: object, dim: object = -2, index: object = None, src: object = None
) -> Tensor | Tile:
    """Rows of src over the rows of a tensor or tile that an index names, in place: (input, dim, index, src) or
    (input, index, src).
    """
    axis = next(filter(is_number, places), dim)
    given = [place for place in (*places, index, src) if place is not None and not is_number(place)]
    if len(given) != 2 or len(places) > 3:
        raise fault("pl.scatter_update takes (input, dim, index, src)")
    target, source = current().operand(input, "scatter_update"), current().operand(given[1], "scatter_update")
    if checks.index(axis, "pl.scatter_update", "dim=") != -2:
        raise fault(f"pl.scatter_update: dim={shown(axis)}", "It replaces rows: dim=-2.")
    numbers = _index(given[0], "scatter_update")
    width = target.shape[-1]
    if source.shape[-1] != width or source.size != numbers.size * width:
        raise fault(f"pl.scatter_update: {describe(source)} at {describe(numbers)} of {describe(target)}")
    if isinstance(target, Tensor):
        rows, new = _rows(target, width), current().tile(reshape(source, [numbers.size, width]), "scatter_update")
        for k in _turns(numbers.size):
            store(slice(new, [1, width], [k, 0]), [_known(read(numbers, k)), 0], rows)
        return target
    result: Tensor | Tile = target
    for k in range(numbers.size):  # each turn makes a new tile of the last one: unrolled, as nobody carries it
        result = assemble(result, slice(source, [1, width], [k, 0]), [_known(read(numbers, k)), 0])
    return result


@implements(EXTRACT)
def extract(
    src: object, index_row: Whole, index_col: Whole, shape: Sequence[Whole], *, target_memory: MemorySpace
) -> Tile:
    """A box of a tile in another memory of the core."""
    tile = current().tile(src, "extract")
    return move(slice(tile, shape, [index_row, index_col]), target_memory)


def _turns(count: int) -> Iterator[Whole]:
    """A loop of the core."""
    return cast("Iterator[Whole]", iter(range_(count)))


def _index(value: object, op: str, dtype: DataType | None = None) -> Tensor | Tile:
    operand = current().operand(value, op)
    if not operand.dtype.is_int or dtype not in (None, operand.dtype):
        raise fault(f"pl.{op}: indices must be {dtype or 'whole numbers'}, not {describe(operand)}")
    return operand


def _choice(value: object, words: tuple[str, ...], op: str, option: str) -> str:
    """A word, or its number."""
    word = words[value] if type(value) is int and 0 <= value < len(words) else value
    if word not in words:
        raise fault(f"pl.{op}: {option}={shown(value)}", f"Use one of {', '.join(words)}.")
    return str(word)


def _rows(tensor: Tensor, width: int) -> Tensor:
    """A tensor as rows of some width."""
    rows = reshape(tensor, [tensor.size // width, width])
    assert isinstance(rows, Tensor)
    return rows


def _known(value: Scalar) -> Whole:
    """An index as a place; where shapes mode does not know it, the first one stands for all."""
    if isinstance(value, Unknown):
        return 0
    return value if isinstance(value, Lane) else int(value)


def _inside(value: Scalar, rows: int, outside: str) -> Whole | None:
    """Where an index points to; None where nothing is loaded."""
    where = _known(value)
    if outside == "clamp":
        # the chip reads an index without its sign: one below 0 lies past the end
        last = rows - 1
        where = last if not isinstance(where, Lane) and where < 0 else _known(scalar_max(scalar_min(where, last), 0))
    elif outside == "wrap":
        where = where % rows
    elif not isinstance(where, Lane) and not 0 <= where < rows:
        return None
    return where
