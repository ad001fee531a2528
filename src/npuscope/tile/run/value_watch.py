"""Watches the values of a run, op by op: where NaN and infinity come from, what a narrow type could not hold, and who
reads memory that nobody wrote.

An op's array is made after the op is written down, so each is looked at when the next one comes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from npuscope.ops.dtypes import Array
from npuscope.ops.shaping import CREATE, FILLPAD, FILLPAD_EXPAND
from npuscope.ops.spec import OpRole, OpSpec
from npuscope.tile.record import sites
from npuscope.tile.record.model import Site
from npuscope.tile.values.checks import describe
from npuscope.tile.values.tensors import Tile, window

EventKind = Literal["NaN", "infinity", "overflow", "never written", "overwritten", "past the end"]
NOTICES: dict[str, EventKind] = {
    "unwritten": "never written",
    "overwritten": "overwritten",
    "out_of_bounds": "past the end",
}
_PADS = (CREATE, FILLPAD, FILLPAD_EXPAND)


@dataclass
class ValueEvent:
    """Where something went wrong with values first, and how often it did there. `task` is -1 outside of tasks."""

    kind: EventKind
    op: str
    kernel: str
    task: int
    site: Site
    about: str
    elements: int
    index: tuple[int, ...] = ()
    times: int = 1


@dataclass
class ValueWatch:
    """The events of one run, in program order."""

    events: list[ValueEvent] = field(default_factory=list)
    _found: dict[tuple[object, ...], ValueEvent] = field(default_factory=dict)
    _unwritten: dict[int, Tile] = field(default_factory=dict)  # tiles, or parts of them, that nobody wrote
    _last: tuple[OpSpec, tuple[object, ...], Tile, int, str, int] | None = None

    def op(
        self, spec: OpSpec, operands: tuple[object, ...], result: Tile | None, site: int, kernel: str, task: int
    ) -> None:
        """An op was written down; the one before it has its values by now."""
        self.settle()
        self._last = None if result is None else (spec, operands, result, site, kernel, task)

    def settle(self) -> None:
        if self._last is None:
            return
        spec, operands, result, site, kernel, task = self._last
        self._last = None
        if result.array is None or result.array.dtype.kind not in "fiu":
            return
        array = result.array[window(result.valid or result.shape)]
        tiles = [one for one in operands if isinstance(one, Tile) and one.array is not None]
        kind, bad, about = self._judged(spec, tiles, result, array)
        if kind is None:
            return
        key = (kind, spec.name, site)
        if key in self._found:
            self._found[key].times += 1
            return
        first = tuple(int(n) for n in np.argwhere(bad)[0]) if bad.any() else ()
        event = ValueEvent(kind, spec.name, kernel, task, sites.site(site), about, int(bad.sum()), first)
        self._found[key] = event
        self.events.append(event)

    def _judged(
        self, spec: OpSpec, tiles: list[Tile], result: Tile, array: Array
    ) -> tuple[EventKind | None, Array, str]:
        nothing = (None, np.zeros(0, bool), "")
        bad = np.isnan(array) if array.dtype.kind == "f" else np.zeros(array.shape, bool)
        if spec is CREATE:
            self._unwritten[id(result)] = result
            return nothing
        stale = [tile for tile in tiles if id(tile) in self._unwritten and _has_nan(tile)]
        if stale and (spec.plane == "view" or spec.is_a(OpRole.WRITES_INTO)):
            if bad.any():
                self._unwritten[id(result)] = result  # still not written in whole
            return nothing
        if bad.any():
            if stale:
                return "never written", bad, f"reads {describe(stale[0])}, of which a part was never written"
            if any(_has_nan(tile) for tile in tiles):
                return nothing  # it came from there
            if spec.plane == "load" and not tiles:
                return "NaN", bad, f"loads {describe(result)} from memory that holds NaN"
            return "NaN", bad, f"makes NaN of {_ranges(tiles)}"
        over = _overflow(spec, tiles, result, array)
        if over is not None:
            return (
                "overflow",
                over,
                f"{_ranges(tiles)} does not fit {result.dtype}, which ends at {float(result.dtype.limits[1]):g}",
            )
        endless = np.isinf(array) if array.dtype.kind == "f" else bad
        made = endless.any() and all(_is_finite(tile) for tile in tiles) and spec not in _PADS
        if made and not spec.is_a(OpRole.FILL) and not (spec.plane == "load" and not tiles):
            return "infinity", endless, f"makes infinity of {_ranges(tiles)}"
        return nothing


def _has_nan(tile: Tile) -> bool:
    return tile.array is not None and tile.array.dtype.kind == "f" and bool(np.isnan(_valid(tile)).any())


def _is_finite(tile: Tile) -> bool:
    return tile.array is None or tile.array.dtype.kind != "f" or bool(np.isfinite(_valid(tile)).all())


def _valid(tile: Tile) -> Array:
    assert tile.array is not None
    return tile.array[window(tile.valid or tile.shape)]


def _overflow(spec: OpSpec, tiles: list[Tile], result: Tile, array: Array) -> Array | None:
    """Where a cast met a number that its type has not; of other ops in narrow floats: where they came to infinity."""
    dtype = result.dtype
    if spec.is_a(OpRole.CAST) and tiles and tiles[0].dtype is not dtype:
        source = _valid(tiles[0])
        if source.shape != array.shape or dtype.storage is None:
            return None
        low, high = map(float, dtype.limits)
        with np.errstate(invalid="ignore"):
            over: Array = np.isfinite(source) & ((source > high) | (source < low))
        return over if over.any() else None
    if dtype.is_float and dtype.bytes < 4 and array.dtype.kind == "f":
        over = np.isinf(array)
        return over if over.any() and all(_is_finite(tile) for tile in tiles) and tiles else None
    return None


def _ranges(tiles: list[Tile]) -> str:
    """What operands hold: `[16, 128] FP32 from -3.1 to 88.2`."""
    if not tiles:
        return "numbers"
    said = []
    for tile in tiles[:3]:
        values = _valid(tile)
        finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
        reach = f"from {finite.min():.4g} to {finite.max():.4g}" if finite.size else "without finite values"
        said.append(f"{describe(tile)} {reach}")
    return " and ".join(said)
