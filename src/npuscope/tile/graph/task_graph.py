"""From a recording to the graph that the runtime would build while the program submits its tasks.

Per task, in order of submission: the declared `deps`; then for every argument the task that allocated it (creator)
and, for Input and InOut, every writer whose box meets the argument's (raw where the kernel reads it, waw where only
the rules made it InOut), an InOut forgetting the boxes it covers; then its OutputExisting and InOut boxes are
remembered. Readers are never waited for (no WAR). Opt-outs: a NoDep argument and a `manual_dep` buffer are neither
looked up nor remembered but keep their creator; a task of a manual scope has its declared deps only.

Footprints are whole captured tensors. **Creator**: tensors made in the orchestration, and values that leave a region,
are allocated by `alloc_tensors`, which the runtime numbers as a task of its own that is done at once; one per scope
(a turn of a loop, or the function) and 16 tensors. Every task that is given such a tensor has an edge from that
allocation, not from the tensor's first writer. Parameters have no creator.
"""

from __future__ import annotations

from math import prod

from npuscope.tile.graph.aliases import Placement
from npuscope.tile.graph.boxes import Box
from npuscope.tile.graph.directions import Direction, called_direction, derive_directions
from npuscope.tile.graph.edges import Allocation, Edge, Graph, Origin
from npuscope.tile.graph.tensormap import TensorMap
from npuscope.tile.record.model import Recording, Task

MOST_ALLOCATED = 16  # tensors of one alloc_tensors


def task_graph(recording: Recording) -> Graph:
    """The runtime's edges of one recording."""
    placement = Placement(recording)
    directions = tuple(derive_directions(recording))
    shared: dict[int, tuple[Box, ...]] = {}  # tasks on the same tensors share their arguments
    for task in recording.tasks:
        if id(task.arguments) not in shared:
            found = [placement.footprint(Box(a.buffer, a.offset, a.shape, a.strides)) for a in task.arguments]
            shared[id(task.arguments)] = tuple(found)
    footprints = tuple([shared[id(task.arguments)] for task in recording.tasks])
    allocations, creators = _allocations(recording, footprints)
    known = TensorMap([prod(buffer.shape) for buffer in recording.buffers])
    edges: list[Edge] = []
    for task, ways, boxes in zip(recording.tasks, directions, footprints, strict=True):
        edges += [Edge(dep, task.id, "explicit") for dep in dict.fromkeys(task.deps)]
        if task.manual_scope:
            continue
        edges += _found(task, ways, boxes, creators, known, recording)
        for way, box in zip(ways, boxes, strict=True):
            if way in ("InOut", "OutputExisting") and not recording.buffers[box.buffer].manual_dep:
                known.insert(box, task.id)
    return Graph(tuple(edges), allocations, directions, footprints)


def _found(
    task: Task,
    ways: tuple[Direction, ...],
    boxes: tuple[Box, ...],
    creators: dict[int, int],
    known: TensorMap,
    recording: Recording,
) -> list[Edge]:
    edges = []
    for n, (way, box) in enumerate(zip(ways, boxes, strict=True)):
        if box.buffer in creators:
            edges.append(Edge(creators[box.buffer], task.id, "creator", n, None, box))
        if way not in ("Input", "InOut") or recording.buffers[box.buffer].manual_dep:
            continue
        origin: Origin = "waw" if called_direction(task.arguments[n]) == "Out" else "raw"
        gone = []
        for entry, writers, covered in known.lookup(box):
            edges += [Edge(writer, task.id, origin, n, entry, box, covered) for writer in writers]
            if covered and way == "InOut":
                gone.append(entry)
        for entry in gone:
            known.remove(entry)
    return edges


def _allocations(
    recording: Recording, footprints: tuple[tuple[Box, ...], ...]
) -> tuple[tuple[Allocation, ...], dict[int, int]]:
    """The allocations in order of submission, and for each buffer that has one the node that stands for it."""
    entered: dict[tuple[tuple[int, int], ...], int] = {}  # scope -> its first task
    for task in recording.tasks:
        scope: tuple[tuple[int, int], ...] = ()
        entered.setdefault(scope, task.id)
        for turn in task.turns:
            if turn.kind != "unroll":
                scope = (*scope, (turn.loop, turn.turn))
                entered.setdefault(scope, task.id)
    used = {box.buffer for boxes in footprints for box in boxes}
    scopes: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for buffer in recording.buffers:
        if buffer.id in used and buffer.origin != "parameter":
            inside = tuple((turn.loop, turn.turn) for turn in buffer.turns if turn.kind != "unroll")
            while inside not in entered:  # a turn that submitted nothing made a tensor for a later one
                inside = inside[:-1]
            scopes.setdefault(inside, []).append(buffer.id)
    found = [
        Allocation(tuple(ids[k : k + MOST_ALLOCATED]), entered[scope])
        for scope, ids in scopes.items()
        for k in range(0, len(ids), MOST_ALLOCATED)
    ]
    found.sort(key=lambda allocation: allocation.before_task)
    creators = {buffer: -1 - n for n, allocation in enumerate(found) for buffer in allocation.buffers}
    return tuple(found), creators
