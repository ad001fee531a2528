"""The loops that a program is in, by lanes: `shapes` mode runs equal iterations of a loop as one (lanes.py)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from npuscope.tile.record.recorder import Moving, Offset

Kind = TypeVar("Kind", bound=np.generic)


class Axes:
    """The loops a program is in, by lanes: how many each runs with now, and which pass over which loop each axis is.

    `epoch` counts every change, so that a number made earlier knows to look again at what is left of its lanes.
    """

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.passes: tuple[int, ...] = ()
        self.epoch = 0
        self._passes = 0
        self._widths: list[int] = []
        self._kept: dict[int, int] = {}  # of passes that ended with fewer lanes than they began with: how many

    def open(self, size: int) -> None:
        """A pass over the next inner loop with this many lanes."""
        self._passes += 1
        self.epoch += 1
        self.sizes.append(size)
        self._widths.append(size)
        self.passes = (*self.passes, self._passes)

    def close(self) -> int:
        """Ends the innermost pass; how many lanes were left of it."""
        self.epoch += 1
        kept = self.sizes.pop()
        if kept != self._widths.pop():
            self._kept[self.passes[-1]] = kept
        self.passes = self.passes[:-1]
        return kept

    def keep(self, count: int) -> None:
        """Goes on with the first lanes of the innermost pass."""
        if count < self.sizes[-1]:
            self.sizes[-1] = count
            self.epoch += 1

    def only_first(self) -> None:
        """Goes on with the first lane alone."""
        if not self.is_single():
            self.sizes[:] = [1] * len(self.sizes)
            self.epoch += 1

    def is_single(self) -> bool:
        """Whether every open loop runs one lane."""
        return all(size == 1 for size in self.sizes)

    def trim(self, values: npt.NDArray[Kind]) -> npt.NDArray[Kind]:
        """Cuts away the lanes that were dropped since an array was made in the loops still open."""
        for k, size in enumerate(self.sizes[: values.ndim]):
            if values.shape[-1 - k] > size:
                values = values[(..., slice(size)) + (slice(None),) * k]
        return values

    def trimmed(self, offsets: Iterable[Offset]) -> list[Offset]:
        return [self._trimmed(offset) for offset in offsets]

    def _trimmed(self, offset: Offset) -> Offset:
        if isinstance(offset, np.ndarray):
            return self.trim(offset)
        if type(offset) is Moving and isinstance(offset.at, np.ndarray):
            return Moving(self.trim(offset.at), offset.ways)
        return offset

    def current(self, values: npt.NDArray[Kind], passes: tuple[int, ...]) -> npt.NDArray[Kind]:
        """An array made in other passes, as of now: of a pass that is over, its last iteration counts, as in Python."""
        for k in range(values.ndim):
            if k >= len(self.passes) or passes[k] != self.passes[k]:
                last = min(self._kept.get(passes[k], values.shape[-1 - k]), values.shape[-1 - k])
                values = values[(..., slice(last - 1, last)) + (slice(None),) * k]
        while values.ndim > len(self.sizes):
            values = values[0]
        return self.trim(values)

    def settle(self, values: npt.NDArray[Kind]) -> Kind:
        """One value for all lanes: the first lane's, after dropping what disagrees with it."""
        first: Kind = values[(0,) * values.ndim]
        if values.ndim == 0:
            return first
        pattern = np.asarray(values == first)
        if pattern.all():
            return first
        for k in range(values.ndim):
            along = np.moveaxis(pattern, -1, 0)
            same = np.all((along == along[:1]).reshape(len(along), -1), axis=1) if pattern.ndim > 1 else along
            keep = len(same) if bool(np.all(same)) else int(np.argmin(same))
            if keep < len(same):
                self.sizes[k] = keep
                self.epoch += 1
            pattern = along[0]
        return first
