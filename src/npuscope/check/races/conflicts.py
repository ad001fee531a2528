"""Accesses that conflict (they share an element and one of them writes it), and the order that the runtime keeps.

Who waits for whom through any number of edges is one bitset per task, a Python int whose bit t stands for task t: n²/16
bytes in all, 18 MB for the 16,783 tasks of forty decode layers. Besides the graph's edges there is the orchestration's
wait: it reads an element only when the writers that the runtime knows are done, so whatever it submits afterwards comes
after them. Allocations are done when submitted and order nothing. Atomic adds into one element commute up to rounding,
so two of them need no order; with reads and writes they do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TypeVar

import numpy as np

from npuscope.base.frozen import dataclass
from npuscope.check.rule import once
from npuscope.lower.program import Program
from npuscope.ops.transfers import DEFER_WAIT, NOTIFY, WAIT
from npuscope.tile.graph.boxes import Box, Offsets, Placement, overlaps
from npuscope.tile.graph.exact import Hazard, Mode, Region, cells_of, exact_accesses, regions_by_buffer
from npuscope.tile.graph.exact import once as distinct
from npuscope.tile.graph.task_graph import Graph
from npuscope.tile.record.model import Recording, Task
from npuscope.tile.record.walk import accesses_of, ops_of

SIGNALS = {op.name for op in (NOTIFY, WAIT, DEFER_WAIT)}  # between ranks
Name = TypeVar("Name", bound=Hashable)
Pairs = dict[tuple[Name, Name, Hazard], dict[int, int]]  # names of both and hazard -> the later one -> earlier ones


def hazard(earlier: Mode, later: Mode) -> Hazard | None:
    """What goes wrong if the later access comes first; None if nothing does."""
    if earlier == later != "write":
        return None
    if earlier == "read":
        return "war"
    return "waw" if later == "write" else "raw"


@dataclass(frozen=True)
class Conflicts:
    """Bitsets over tasks, the later one's number first: earlier tasks (and perhaps itself) that it conflicts with.

    `adds`: those that add to an element that it adds to. `racing`: per buffer the tasks that no edge orders.
    """

    needed: tuple[int, ...]
    adds: tuple[int, ...]
    racing: dict[int, int]


@once
def regions_of(program: Program) -> dict[int, list[Region]]:
    """What tasks touched of every buffer that somebody wrote, in order of submission."""
    return regions_by_buffer(program.recording)


@once
def classes_of(program: Program) -> ElementClasses:
    """Elements that the same regions touched, together; remembers what it was asked."""
    return ElementClasses()


@once
def conflicts_of(program: Program) -> Conflicts:
    """Which earlier tasks each task shares an element with that one of the two writes."""
    before, classes = order_of(program).before, classes_of(program)
    needed, adds = [0] * len(before), [0] * len(before)
    racing: dict[int, int] = defaultdict(int)
    for buffer, touched in regions_of(program).items():
        for found in classes.of(touched):
            if len(found) == 1:
                continue
            reads = writes = added = 0
            for n in found:
                task, mode = touched[n].task, touched[n].mode
                if mode == "read":
                    earlier = writes | added
                    reads |= 1 << task
                elif mode == "write":
                    earlier = reads | writes | added
                    writes |= 1 << task
                else:
                    earlier = reads | writes
                    adds[task] |= added
                    added |= 1 << task
                needed[task] |= earlier
                if loose := earlier & ~before[task]:
                    racing[buffer] |= loose | 1 << task
    # a signal says that what came before is done, and what comes after a wait may read what a peer wrote
    signals = sum(1 << task for task in _signalling(program))
    for task, earlier in enumerate(before):
        needed[task] |= earlier & ~(1 << task) & (-1 if signals >> task & 1 else signals)
    return Conflicts(tuple(needed), tuple(adds), dict(racing))


def _signalling(program: Program) -> Iterator[int]:
    """Tasks that tell other ranks something, or wait for them."""
    bodies = program.recording.bodies
    tell = {n for n, body in enumerate(bodies) if any(op.name in SIGNALS for op, _ in ops_of(body))}
    return (task.id for task in program.recording.tasks if any(group.body in tell for group in task.groups))


def unordered(
    regions: Sequence[Region], names: Sequence[Name], before: Mapping[int, int] | Sequence[int], classes: ElementClasses
) -> Pairs[Name]:
    """Pairs of accesses that conflict and are not ordered, by the names of the two."""
    found: Pairs[Name] = defaultdict(lambda: defaultdict(int))
    for touched in classes.of(regions):
        seen: dict[tuple[Name, Mode], int] = defaultdict(int)
        for n in touched:
            task, mode, name = regions[n].task, regions[n].mode, names[n]
            for (other, how), earlier in seen.items():
                kind = hazard(how, mode)
                if kind is not None and (loose := earlier & ~before[task]):
                    found[other, name, kind][task] |= loose
            seen[name, mode] |= 1 << task
    return found


def ones(bits: int) -> list[int]:
    """The places of a bitset, ascending."""
    return [place for place, bit in enumerate(reversed(bin(bits)[2:])) if bit == "1"]


@dataclass(frozen=True)
class TaskOrder:
    """`before[t]`: the tasks that are done when t starts, and t itself; `read[n]`: those done at host read n."""

    before: tuple[int, ...]
    read: tuple[int, ...]

    def ordered(self, earlier: int, later: int) -> bool:
        return bool(self.before[later] >> earlier & 1)


@once
def order_of(program: Program) -> TaskOrder:
    """The order that the runtime keeps, whatever the cores' timing."""
    return closure(program.recording, program.graph, program.graph.pairs)


def closure(recording: Recording, graph: Graph, pairs: Iterable[tuple[int, int]]) -> TaskOrder:
    """The same with these edges only."""
    count = len(recording.tasks)
    waits: dict[int, list[int]] = defaultdict(list)
    for src, dst in pairs:
        if src >= 0:
            waits[dst].append(src)
    waited = _waited(recording, graph)
    reads = sorted(range(len(waited)), key=lambda n: recording.host_reads[n].before_task)
    before: list[int] = []
    read = [0] * len(waited)
    held, place = 0, 0  # what the orchestration has waited for so far
    for task in range(count + 1):
        while place < len(reads) and recording.host_reads[reads[place]].before_task <= task:
            for writer in waited[reads[place]]:
                held |= before[writer]
            read[reads[place]] = held
            place += 1
        if task < count:
            done = held | 1 << task
            for src in waits[task]:
                done |= before[src]
            before.append(done)
    return TaskOrder(tuple(before), tuple(read))


def _waited(recording: Recording, graph: Graph) -> list[list[int]]:
    """Per host read the writers that the runtime's map has for its element (or had: a later one waits for those)."""
    if not recording.host_reads:
        return []
    placement = Placement(recording)
    writers: dict[int, list[tuple[int, Box]]] = defaultdict(list)
    for task, box in _remembered(recording, graph):
        writers[box.buffer].append((task, box))
    found = []
    for read in recording.host_reads:
        place = placement.footprint(Box(read.buffer, read.offset, (1,), (1,)))
        found.append([t for t, box in writers[place.buffer] if t < read.before_task and overlaps(place, box)])
    return found


def _remembered(recording: Recording, graph: Graph) -> Iterator[tuple[int, Box]]:
    for task, ways, boxes in zip(recording.tasks, graph.directions, graph.footprints, strict=True):
        if not task.manual_scope:
            for way, box in zip(ways, boxes, strict=True):
                if way in ("InOut", "OutputExisting") and not recording.buffers[box.buffer].manual_dep:
                    yield task.id, box


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
    pairs = distinct(np.concatenate(cells) * count + owner)  # by cell, then by region, each once
    cell, owner = np.divmod(pairs, count)
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    # Two cells are of a class if their regions' numbers add up to the same: 64 random bits each do not by chance.
    numbers = np.random.default_rng(0).integers(0, 1 << 63, count, dtype=np.int64)
    sums = np.add.reduceat(numbers[owner], starts)
    ends = np.append(starts[1:], len(owner))
    _, first = np.unique(sums, return_index=True)
    return tuple(tuple(owner[starts[n] : ends[n]].tolist()) for n in np.sort(first).tolist())


Equal = tuple[int, int, Mode, tuple[int, ...], tuple[int, ...]]  # argument, site, mode, shape, strides


class Lines:
    """Reads one recording; a body is taken apart once."""

    def __init__(self, recording: Recording) -> None:
        self.recording, self.placement = recording, Placement(recording)
        self._plan = cache(self._planned)

    def of(self, number: int, buffers: Container[int]) -> Iterator[tuple[Region, int]]:
        """The regions of a task in these buffers (where assembled parts lie), each with the site that touched it."""
        task = self.recording.tasks[number]
        if task.form == "extern":
            yield from self._of_extern(task, buffers)
        together: dict[Equal, list[Offsets]] = defaultdict(list)
        for group in task.groups:
            for equal, places in self._plan(group.body):
                if self.placement.root(task.arguments[equal[0]].buffer) in buffers:
                    together[equal] += [group.offsets[place].ravel() for place in places]
        for (argument, site, mode, shape, strides), offsets in together.items():
            piece = (task.arguments[argument].buffer, shape, strides, distinct(np.concatenate(offsets)))
            if 0 not in shape:
                yield Region(task.id, mode, *self.placement.pieces(piece)), site

    def _planned(self, body: int) -> list[tuple[Equal, list[int]]]:
        """The accesses of a body at one line that touch equal boxes, and their places among its offsets."""
        found: dict[Equal, list[int]] = defaultdict(list)
        for place, (op, access, _) in enumerate(accesses_of(self.recording.bodies[body])):
            found[access.argument, op.site, access.mode, access.shape, access.strides].append(place)
        return list(found.items())

    def _of_extern(self, task: Task, buffers: Container[int]) -> Iterator[tuple[Region, int]]:
        for one in exact_accesses(self.recording, task, self.placement):
            if one.buffer in buffers and 0 not in one.shape:
                yield Region(task.id, one.mode, one.buffer, one.shape, one.strides, np.unique(one.offsets)), one.site


Pair = tuple[int, int]  # tasks: who is waited for, who waits


def inferred(program: Program) -> list[Pair]:
    """The edges that the runtime's map made, not the program."""
    return [(src, dst) for (src, dst), why in program.graph.pairs.items() if src >= 0 and "explicit" not in why]


@once
def false_edges(program: Program) -> frozenset[Pair]:
    """Those of them that make a task wait though the two share no element that one of them writes."""
    conflicts = conflicts_of(program)
    false = {(s, d) for s, d in inferred(program) if not (conflicts.needed[d] | conflicts.adds[d]) >> s & 1}
    if not false:
        return frozenset()
    without = closure(program.recording, program.graph, (pair for pair in program.graph.pairs if pair not in false))
    return frozenset((src, dst) for src, dst in false if not without.ordered(src, dst))
