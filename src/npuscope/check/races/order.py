"""Who waits for whom through any number of edges: one bitset per task, a Python int whose bit t stands for task t.

Besides the graph's edges there is the orchestration's own wait: it reads an element only when the writers that the
runtime knows are done, so whatever it submits afterwards comes after them. Allocations are done when submitted and
order nothing. A set takes as many bits as tasks came before, n²/16 bytes in all: 18 MB for the 16,783 tasks of forty
decode layers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from npuscope.check.once import once
from npuscope.lower.program import Program
from npuscope.tile.graph.boxes import Box, Placement, overlaps
from npuscope.tile.graph.task_graph import Graph
from npuscope.tile.record.model import Recording


@dataclass(frozen=True)
class Order:
    """`before[t]`: the tasks that are done when t starts, and t itself; `read[n]`: those done at host read n."""

    before: tuple[int, ...]
    read: tuple[int, ...]

    def ordered(self, earlier: int, later: int) -> bool:
        return bool(self.before[later] >> earlier & 1)


@once
def order_of(program: Program) -> Order:
    """The order that the runtime keeps, whatever the cores' timing."""
    return closure(program.recording, program.graph, program.graph.pairs)


def closure(recording: Recording, graph: Graph, pairs: Iterable[tuple[int, int]]) -> Order:
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
    return Order(tuple(before), tuple(read))


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
