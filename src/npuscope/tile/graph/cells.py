"""Regions of one buffer as sets of cells: the coarsest grid on which every region is a whole number of cells.

The buffer's flat index is read as digits (row, column, …) whose steps are the strides that regions use, so that a
tile is a box of digits and a grid cut at the tiles' edges has few cells. A digit boundary that a region runs across
is given up; axes that are no digit fall apart into single steps. So any set of strided boxes has a grid, and the
usual ones have a small one.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Literal, NamedTuple

import numpy as np

from npuscope.tile.graph.aliases import Offsets
from npuscope.tile.graph.boxes import Dims, dims

Mode = Literal["read", "write", "add"]


class Region(NamedTuple):
    """Equal boxes that a task touched in a buffer."""

    task: int
    mode: Mode
    buffer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: Offsets

    @property
    def reads(self) -> bool:
        return self.mode != "write"

    @property
    def writes(self) -> bool:
        return self.mode != "read"


class _Boxes(NamedTuple):
    """Boxes of digits: where each begins (one row per digit), and their size per digit."""

    starts: Offsets
    sizes: list[int]


def once(values: Offsets) -> Offsets:
    """The values in order, each once: `np.unique`, which takes five times as long for arrays as short as these."""
    if len(values) < 2:
        return values
    ordered = np.sort(values)
    different = ordered[1:] != ordered[:-1]
    whole = np.count_nonzero(different) == len(different)
    return ordered if whole else ordered[np.concatenate([[True], different])]


def cells_of(regions: list[Region]) -> tuple[list[Offsets], int]:
    """The cells of each region, and how many there are."""
    alike: dict[Dims, list[int]] = defaultdict(list)  # regions of equal boxes are worked out together
    for number, region in enumerate(regions):
        alike[dims(region.shape, region.strides)].append(number)
    boxes = _fitted([(axes, _joined([regions[n].offsets for n in numbers])) for axes, numbers in alike.items()])
    digits = range(len(boxes[0].sizes))
    cuts = [once(np.concatenate([e for b in boxes for e in (b.starts[k], b.starts[k] + b.sizes[k])])) for k in digits]
    counts = [len(cut) - 1 for cut in cuts]
    found: list[Offsets] = [np.empty(0, np.int64)] * len(regions)
    for numbers, box in zip(alike.values(), boxes, strict=True):
        cells, of_each = _cells(box, cuts, counts)
        if len(numbers) == 1:
            found[numbers[0]] = cells
            continue
        places = np.cumsum([len(regions[n].offsets) for n in numbers])
        ends = np.cumsum(of_each)[places * (len(of_each) // int(places[-1])) - 1].tolist()
        for number, start, end in zip(numbers, [0, *ends], ends, strict=False):
            found[number] = cells[start:end]
    return found, int(np.prod(counts, dtype=np.int64))


def _joined(parts: list[Offsets]) -> Offsets:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _fitted(regions: list[tuple[Dims, Offsets]]) -> list[_Boxes]:
    """All regions as boxes of digits, on the finest digits that all of them keep to."""
    steps = chain_of({stride for axes, _ in regions for _, stride in axes})
    while True:
        boxes: list[_Boxes] = []
        for axes, offsets in regions:
            box = _digits(axes, offsets, steps)
            if isinstance(box, int):
                steps = tuple(step for step in steps if step != box)
                break
            boxes.append(box)
        else:
            return boxes


def chain_of(strides: set[int]) -> tuple[int, ...]:
    """Of the strides those that divide one another, widest first, and 1."""
    chain = [1]
    for stride in sorted(strides):
        if stride > chain[-1] and stride % chain[-1] == 0:
            chain.append(stride)
    return tuple(reversed(chain))


def _digits(axes: Dims, offsets: Offsets, steps: tuple[int, ...]) -> _Boxes | int:
    """The boxes in digits of these steps, or the step whose boundary they run across."""
    sizes = [1] * len(steps)
    todo = list(axes)
    while todo:
        size, stride = todo.pop()
        k = steps.index(stride) if stride in steps else -1
        if k < 0 or sizes[k] > 1:
            offsets = np.add.outer(offsets, np.arange(size, dtype=np.int64) * stride).ravel()
            continue
        if k > 0:
            radix = steps[k - 1] // stride
            digit = offsets // stride % radix
            if size % radix == 0 and size >= radix and not np.any(digit):
                sizes[k], size = radix, size // radix
                if size > 1:
                    todo.append((size, steps[k - 1]))
                continue
            if int(np.max(digit)) + size > radix:
                return steps[k - 1]
        sizes[k] = size
    starts, rest = [], offsets
    for step in steps:
        digit, rest = np.divmod(rest, step)
        starts.append(digit)
    return _Boxes(np.stack(starts), sizes)


def _cells(box: _Boxes, cuts: list[Offsets], counts: list[int]) -> tuple[Offsets, Offsets]:
    """Numbers of the cells that the boxes hold, box after box, and how many each holds."""
    first = [np.searchsorted(cut, start) for cut, start in zip(cuts, box.starts, strict=True)]
    last = [np.searchsorted(cut, start + size) for cut, start, size in zip(cuts, box.starts, box.sizes, strict=True)]
    cells = np.zeros(box.starts.shape[1], np.int64)
    owner = np.arange(len(cells))
    of_each = np.ones(len(cells), np.int64)
    for begin, end, count in zip(first, last, counts, strict=True):
        wide = (end - begin)[owner]
        steps = np.arange(int(np.sum(wide))) - np.repeat(np.cumsum(wide) - wide, wide)
        cells = np.repeat(cells * count + begin[owner], wide) + steps
        owner = np.repeat(owner, wide)
        of_each *= end - begin
    return cells, of_each
