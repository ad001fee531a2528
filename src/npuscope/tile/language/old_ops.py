"""Ops of old programs that are two ops today: `pl.tile.sum(tile, axis)` is `row_sum` or `col_sum` (history.py)."""

from __future__ import annotations

from npuscope.tile.calls import shaping
from npuscope.tile.calls.bound import function_of
from npuscope.tile.fault import fault
from npuscope.tile.values.checks import index, shown
from npuscope.tile.values.tensors import Tensor, Tile


def _along(op: str, value: Tensor | Tile, axis: object, keepdim: bool) -> object:
    number = int(index(axis, f"pl.tile.{op}", "axis"))
    if number not in (0, 1, -1):
        raise fault(f"pl.tile.{op}: axis= is 0 or 1, not {shown(axis)}")
    result = function_of(f"col_{op}" if number == 0 else f"row_{op}")(value)
    assert isinstance(result, Tile)
    return result if keepdim else shaping.reshape(result, [max(result.shape)])


def sum_(tile: Tensor | Tile, axis: object, keepdim: bool = False) -> object:
    return _along("sum", tile, axis, keepdim)


def max_(tile: object = None, axis: object = 0, keepdim: bool = False, **named: object) -> object:
    """Of two scalars, or of a tile along an axis."""
    if isinstance(tile, Tensor | Tile):
        return _along("max", tile, axis, keepdim)
    return function_of("max")(**{"lhs": tile, "rhs": axis, **named})


def min_(tile: object = None, axis: object = 0, keepdim: bool = False, **named: object) -> object:
    """Of two scalars, or of a tile along an axis."""
    if isinstance(tile, Tensor | Tile):
        return _along("min", tile, axis, keepdim)
    return function_of("min")(**{"lhs": tile, "rhs": axis, **named})
