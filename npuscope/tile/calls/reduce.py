"""Reductions along rows and columns, over the valid region."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuscope.ops.dtypes import INT32
from npuscope.ops.numeric import reduce, rounding, storage
from npuscope.tile.calls.checks import describe
from npuscope.tile.fault import fault
from npuscope.tile.run.state import current
from npuscope.tile.run.values import Tile


def _reduction(name: str, kernel: Callable[[Any], Any], rows: bool, index: bool = False) -> Callable[..., Tile]:
    def op(input: Any, tmp_tile: Any = None) -> Tile:
        run = current()
        tile = run.tile(input, name)
        run.region(name)
        if len(tile.shape) < 2:
            raise fault(f"pl.{name} needs rows and columns, not {describe(tile)}")
        held = tile.valid or tile.shape
        if not (held[-1] if rows else held[-2]) and not name.endswith(("sum", "prod")):
            raise fault(f"pl.{name} of {describe(tile)}: there is nothing along this axis")
        shape = (*tile.shape[:-1], 1) if rows else (*tile.shape[:-2], 1, tile.shape[-1])
        dtype = INT32 if index else tile.dtype
        valid = None
        if tile.valid is not None:
            valid = (*tile.valid[:-1], 1) if rows else (*tile.valid[:-2], 1, tile.valid[-1])
        result = Tile(None, shape, dtype, None if valid == shape else valid)
        run.emit(name, "vector", (tile,), result)
        if tile.array is not None:
            array = tile.array
            if tile.valid is not None:
                array = array[..., : tile.valid[-1]] if rows else array[..., : tile.valid[-2], :]
            if array.shape[-1 if rows else -2] == 0 and not name.endswith(("sum", "prod")):
                result.array = storage.new(shape, dtype, storage.poison(dtype))  # the extreme of nothing
                return result
            out = kernel(array)
            result.array = out if index else rounding.round_to(out.astype(dtype.compute, copy=False), dtype)
        return result

    op.__name__ = op.__qualname__ = f"pl.{name}"
    return op


def _columns(kernel: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda array: np.swapaxes(kernel(np.swapaxes(array, -1, -2)), -1, -2)


row_sum = _reduction("row_sum", reduce.row_sum, True)
row_max = _reduction("row_max", reduce.row_max, True)
row_min = _reduction("row_min", reduce.row_min, True)
row_prod = _reduction("row_prod", reduce.row_prod, True)
row_argmax = _reduction("row_argmax", reduce.row_argmax, True, index=True)
row_argmin = _reduction("row_argmin", reduce.row_argmin, True, index=True)
col_sum = _reduction("col_sum", reduce.col_sum, False)
col_max = _reduction("col_max", reduce.col_max, False)
col_min = _reduction("col_min", reduce.col_min, False)
col_prod = _reduction("col_prod", reduce.col_prod, False)
col_argmax = _reduction("col_argmax", _columns(reduce.row_argmax), False, index=True)
col_argmin = _reduction("col_argmin", _columns(reduce.row_argmin), False, index=True)
