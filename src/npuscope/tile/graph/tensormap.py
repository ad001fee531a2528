"""The runtime's map from regions to their writers: what a lookup finds, and when an entry is forgotten.

Entries of one buffer are compared by their ranges first, then axis by axis when both have the same row-major strides.
COVERED: the box looked up holds the entry's whole; OTHER: they meet, or cannot be told apart. Entries here live until a
covering InOut removes them; the device also drops those of tasks that have retired, which never removes a wait.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, pairwise
from typing import Literal

from npuscope.tile.graph.boxes import Box

Status = Literal["apart", "covered", "other"]


@lru_cache(maxsize=1 << 16)
def status(wanted: Box, entry: Box, elements: int) -> Status:
    """How a box looked up lies to an entry of the same buffer of so many elements."""
    if wanted.offset + wanted.extent <= entry.offset or entry.offset + entry.extent <= wanted.offset:
        return "apart"
    strides = wanted.strides
    if not strides or strides != entry.strides or strides[-1] != 1 or 0 in strides:
        return "other"
    if any(outer % inner for outer, inner in pairwise(strides)) or elements % strides[0]:
        return "other"
    sizes = (elements // strides[0], *(outer // inner for outer, inner in pairwise(strides)))
    covered, left, right = True, wanted.offset, entry.offset
    ranges = []
    for stride, size, wide, narrow in zip(strides, sizes, wanted.shape, entry.shape, strict=True):
        (start, left), (begin, right) = divmod(left, stride), divmod(right, stride)
        if start + wide > size or begin + narrow > size:
            return "other"
        ranges.append((start, start + wide, begin, begin + narrow))
    for start, end, begin, stop in ranges:
        if end <= begin or stop <= start:
            return "apart"
        covered &= start <= begin and stop <= end
    return "covered" if covered else "other"


class TensorMap:
    """Writers per buffer, found by range: entries of one box are together, boxes are sorted by where they begin.

    Boxes of similar length share a list, so that one long box does not make every search long.
    """

    def __init__(self, elements: list[int]) -> None:
        self.elements = elements  # of each buffer
        self.producers: dict[Box, list[int]] = {}
        self.starts: dict[int, dict[int, list[tuple[int, Box]]]] = {}  # buffer -> bits of the extent -> (offset, box)

    def insert(self, box: Box, task: int) -> None:
        if box in self.producers:
            self.producers[box].append(task)
            return
        self.producers[box] = [task]
        by_length = self.starts.setdefault(box.buffer, {})
        insort(by_length.setdefault(box.extent.bit_length(), []), (box.offset, box))

    def lookup(self, wanted: Box) -> Iterator[tuple[Box, list[int], bool]]:
        """Every box with writers that may share an element with `wanted`: box, writers, whether it is covered."""
        elements = self.elements[wanted.buffer]
        end = wanted.offset + wanted.extent
        for bits, starts in self.starts.get(wanted.buffer, {}).items():
            first = bisect_left(starts, (wanted.offset - (1 << bits),))
            for offset, box in islice(starts, first, None):
                if offset >= end:
                    break
                found = status(wanted, box, elements)
                if found != "apart":
                    yield box, self.producers[box], found == "covered"

    def remove(self, box: Box) -> None:
        del self.producers[box]
        starts = self.starts[box.buffer][box.extent.bit_length()]
        del starts[bisect_left(starts, (box.offset, box))]
