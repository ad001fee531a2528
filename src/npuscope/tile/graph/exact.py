"""What tasks really touched: their boxes, and who depends on whom element by element, whatever the runtime thinks.

`exact_edges` follows every element in the order of submission: raw from its last writer to a reader, waw from its
last writer to the next, war from every reader since the last write to the next writer. An atomic add reads and
writes. Pairs that follow by way of others are left out, so a graph orders all accesses that conflict if it orders
these. Elements are taken together in cells: the coarsest grid on which every region is a whole number of cells.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from typing import Literal, NamedTuple

import numpy as np

from npuscope.tile.graph.boxes import Dims, Offsets, Placement, dims
from npuscope.tile.record.model import Argument, Body, Recording, Task
from npuscope.tile.record.walk import ops_of

Mode = Literal["read", "write", "add"]
Hazard = Literal["raw", "waw", "war"]
_Pair = tuple[int, int, Hazard]
NOBODY = -1


@dataclass(frozen=True)
class Touched:
    """Equal boxes that one op touched: `offsets` and the `blocks` that did, each place once per block."""

    buffer: int
    mode: Literal["read", "write", "add"]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: Offsets
    blocks: Offsets
    site: int


class ExactEdge(NamedTuple):
    """`dst` conflicts with `src` on elements of `buffer`, and nothing between them orders the two."""

    src: int
    dst: int
    hazard: Hazard
    buffer: int


def exact_accesses(recording: Recording, task: Task, placement: Placement | None = None) -> tuple[Touched, ...]:
    """Every box the task read or wrote; boxes of assembled parts where they lie."""
    placement = placement or Placement(recording)
    found = []
    for group in task.groups:
        plan = ((op.site, access) for op, _ in ops_of(recording.bodies[group.body]) for access in op.accesses)
        for (site, access), offsets in zip(plan, group.offsets, strict=True):
            places = np.broadcast_to(offsets, (*offsets.shape[:-1], len(group.blocks)))
            blocks = np.broadcast_to(group.blocks, places.shape).ravel()
            buffer = task.arguments[access.argument].buffer
            piece = placement.pieces((buffer, access.shape, access.strides, places.ravel()))
            blocks = np.repeat(blocks, len(piece[3]) // max(len(blocks), 1))
            found.append(Touched(piece[0], access.mode, piece[1], piece[2], piece[3], blocks, site))
    for mode, argument in _by_signature(task):
        piece = placement.pieces((argument.buffer, argument.shape, argument.strides, np.array([argument.offset])))
        found.append(Touched(piece[0], mode, *piece[1:], np.zeros(len(piece[3]), np.int64), task.site))
    return tuple(found)


def _by_signature(task: Task) -> Iterator[tuple[Mode, Argument]]:
    """Of an extern kernel only its signature is known: it may touch all of what it is given."""
    if task.form == "extern":
        for argument in task.arguments:
            if argument.reads:
                yield "read", argument
            if argument.writes:
                yield "write", argument


def exact_edges(recording: Recording, placement: Placement | None = None) -> tuple[ExactEdge, ...]:
    """Pairs of tasks whose order matters, by the elements they touched, in the order of the later task."""
    edges: list[ExactEdge] = []
    known: dict[Hashable, list[_Pair]] = {}  # layers touch their buffers alike
    for buffer, regions in regions_by_buffer(recording, placement).items():
        tasks = list(dict.fromkeys(region.task for region in regions))
        if len(tasks) == 1:
            continue
        places = {task: place for place, task in enumerate(tasks)}
        alike = tuple([(places[r.task], r.mode, r.shape, r.strides, r.offsets.tobytes()) for r in regions])
        if alike not in known:
            known[alike] = list(_pairs_of(regions))
        edges += [ExactEdge(tasks[src], tasks[dst], hazard, buffer) for src, dst, hazard in known[alike]]
    return tuple(sorted(edges, key=itemgetter(1)))


def regions_by_buffer(recording: Recording, placement: Placement | None = None) -> dict[int, list[Region]]:
    """What tasks touched of every buffer that somebody wrote, in order of submission; parts where they lie."""
    placement = placement or Placement(recording)
    written = {placement.root(a.buffer) for task in recording.tasks for a in task.arguments if a.writes}
    regions: dict[int, list[Region]] = defaultdict(list)
    for region in _regions(recording, placement, written):
        regions[region.buffer].append(region)
    return regions


def _regions(recording: Recording, placement: Placement, written: set[int]) -> Iterator[Region]:
    """Per task the places it touched in buffers that somebody wrote; equal boxes together, each place once."""
    plan = cache(lambda body: _plan(recording.bodies[body]))
    matters = cache(lambda buffer: placement.root(buffer) in written)
    for task in recording.tasks:
        together: dict[tuple[int, _Equal], list[Offsets]] = defaultdict(list)
        buffers = [argument.buffer for argument in task.arguments]
        for group in task.groups:
            for argument, equal, numbers in plan(group.body):
                if matters(buffers[argument]):
                    together[buffers[argument], equal] += [group.offsets[n].ravel() for n in numbers]
        for mode, argument_ in _by_signature(task):
            if matters(argument_.buffer):
                key = (argument_.buffer, (mode, argument_.shape, argument_.strides))
                together[key].append(np.array([argument_.offset]))
        for (buffer, (mode, shape, strides)), places in together.items():
            if 0 not in shape:
                offsets = once(places[0] if len(places) == 1 else np.concatenate(places))
                yield Region(task.id, mode, *placement.pieces((buffer, shape, strides, offsets)))


_Equal = tuple[Mode, tuple[int, ...], tuple[int, ...]]


def _plan(body: Body) -> list[tuple[int, _Equal, list[int]]]:
    """The accesses of a body that touch equal boxes of one argument: how, and their places among its offsets."""
    found: dict[tuple[int, _Equal], list[int]] = defaultdict(list)
    accesses = (access for op, _ in ops_of(body) for access in op.accesses)
    for number, access in enumerate(accesses):
        found[access.argument, (access.mode, access.shape, access.strides)].append(number)
    return [(*key, numbers) for key, numbers in found.items()]


def _pairs_of(regions: list[Region]) -> Iterator[_Pair]:
    """The conflicts in one buffer, whose regions come in order of submission; its tasks are counted from 0."""
    cells, count = cells_of(regions)
    writer = np.full(count, NOBODY, np.int64)
    readers = np.full(count, NOBODY, np.int64)  # a place in `chain`, which leads to the readers before
    chain: list[tuple[int, int]] = []
    for task, reads, writes in _per_task(regions, cells):
        before_reads, before_writes = once(writer[reads]).tolist(), once(writer[writes]).tolist()
        yield from [(src, task, "raw") for src in before_reads if src != NOBODY]
        yield from [(src, task, "waw") for src in before_writes if src != NOBODY]
        waiting = _all_readers(chain, once(readers[writes]).tolist())
        yield from [(src, task, "war") for src in sorted(waiting)]
        before, place = np.unique(readers[reads], return_inverse=True)
        readers[reads] = len(chain) + place.ravel()
        chain += [(task, link) for link in before.tolist()]
        writer[writes] = task
        readers[writes] = NOBODY  # its own reads came with its write: whoever comes next waits for the write


def _per_task(regions: list[Region], cells: list[Offsets]) -> Iterator[tuple[int, Offsets, Offsets]]:
    """Task by task, counted from 0: the cells it read and the cells it wrote, each once."""
    start = number = 0
    none = np.empty(0, np.int64)
    while start < len(regions):
        task, end = regions[start].task, start
        while end < len(regions) and regions[end].task == task:
            end += 1
        here = range(start, end)
        reads = [cells[n] for n in here if regions[n].reads]
        writes = [cells[n] for n in here if regions[n].writes]
        yield number, once(np.concatenate([none, *reads])), once(np.concatenate([none, *writes]))
        start, number = end, number + 1


def _all_readers(chain: list[tuple[int, int]], links: list[int]) -> set[int]:
    found: set[int] = set()
    seen: set[int] = set()
    for link in links:
        while link != NOBODY and link not in seen:
            seen.add(link)
            reader, link = chain[link]
            found.add(reader)
    return found


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
