"""Elements of a buffer that the same regions touched, together: a class is the list of its regions.

Where forty layers do the same to forty buffers, the work is done once: classes depend on shapes, strides and offsets
of the regions, not on whose they are.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from npuscope.tile.graph.exact import Region, cells_of, once

Class = tuple[int, ...]  # indices of regions, ascending


class ElementClasses:
    """Remembers what it has worked out."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[Class, ...]] = {}

    def of(self, regions: Sequence[Region]) -> tuple[Class, ...]:
        """The distinct lists of regions that some element is in."""
        key = tuple((region.shape, region.strides, region.offsets.tobytes()) for region in regions)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = _classes(list(regions))
        return found


def _classes(regions: list[Region]) -> tuple[Class, ...]:
    cells, _ = cells_of(regions)
    count = len(regions)
    owner = np.repeat(np.arange(count), [len(found) for found in cells])
    pairs = once(np.concatenate(cells) * count + owner)  # by cell, then by region, each once
    cell, owner = np.divmod(pairs, count)
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    # Two cells are of a class if their regions' numbers add up to the same: 64 random bits each do not by chance.
    numbers = np.random.default_rng(0).integers(0, 1 << 63, count, dtype=np.int64)
    sums = np.add.reduceat(numbers[owner], starts)
    ends = np.append(starts[1:], len(owner))
    _, first = np.unique(sums, return_index=True)
    return tuple(tuple(owner[starts[n] : ends[n]].tolist()) for n in np.sort(first).tolist())
