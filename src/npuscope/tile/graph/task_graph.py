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

Directions are those that the compiler derives. The kernel's: as declared (Out and InOut stay; In is lifted where the
body writes), for a region Out if it only writes the tensor and InOut if it also reads any of it, atomic adds included.
At the call a kernel's Out becomes InOut by one of three rules, and is OutputExisting otherwise.

- R-seq: under any sequential loop (range, while).
- R-prior: after an earlier writer of the same root in the scope. Scopes nest by loops: a call sees writers before it
  in its own turn and before the loops around it, not those of other turns, for they are the same statements again.
  `unroll` is expanded before this, so its turns are statements one after the other.
- R-enclosing: where the root is a parameter of the entry declared InOut.

A root is a whole buffer or one slice of it; a reshaped view has none, and only R-seq holds for it. Known difference:
an `if` arm that did not run leaves no writer here; in the compiler it does.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice, pairwise
from math import prod
from typing import Literal, NamedTuple

from npuscope.tile.graph.boxes import Box, Placement, row_major
from npuscope.tile.record.model import Argument, Recording

MOST_ALLOCATED = 16  # tensors of one alloc_tensors


def task_graph(recording: Recording, footprints: tuple[tuple[Box, ...], ...] | None = None) -> Graph:
    """The runtime's edges of one recording; `footprints`: of its tasks, where they are known."""
    footprints = footprints or _footprints(recording)
    directions = tuple(derive_directions(recording))
    allocations, creators = _allocations(recording, footprints)
    known = TensorMap(lambda buffer: prod(recording.buffers[buffer].shape))
    edges: list[Edge] = []
    for task, ways, boxes in zip(recording.tasks, directions, footprints, strict=True):
        edges += [Edge(dep, task.id, "explicit") for dep in dict.fromkeys(task.deps)]
        if task.manual_scope:
            continue
        manual = [recording.buffers[box.buffer].manual_dep for box in boxes]
        for n, (way, box) in enumerate(zip(ways, boxes, strict=True)):
            if box.buffer in creators:
                edges.append(Edge(creators[box.buffer], task.id, "creator", n, None, box))
            if way not in ("Input", "InOut") or manual[n]:
                continue
            origin: Origin = "waw" if called_direction(task.arguments[n]) == "Out" else "raw"
            for entry, writers, covered in list(known.lookup(box)):
                edges += [Edge(writer, task.id, origin, n, entry, box, covered) for writer in writers]
                if covered and way == "InOut":
                    known.remove(entry)
        for way, box, by_hand in zip(ways, boxes, manual, strict=True):
            if way in ("InOut", "OutputExisting") and not by_hand:
                known.insert(box, task.id)
    return Graph(tuple(edges), allocations, directions, footprints)


def _footprints(recording: Recording) -> tuple[tuple[Box, ...], ...]:
    """Per task where its arguments lie."""
    placement = Placement(recording)
    shared: dict[int, tuple[Box, ...]] = {}  # tasks on the same tensors share their arguments
    for task in recording.tasks:
        if id(task.arguments) not in shared:
            found = [placement.footprint(Box(a.buffer, a.offset, a.shape, a.strides)) for a in task.arguments]
            shared[id(task.arguments)] = tuple(found)
    return tuple([shared[id(task.arguments)] for task in recording.tasks])


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
    for buffer in [recording.buffers[n] for n in sorted(used)]:
        if buffer.origin != "parameter":
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


Origin = Literal["creator", "raw", "waw", "explicit"]
ORIGINS: tuple[Origin, ...] = ("creator", "raw", "waw", "explicit")


class Edge(NamedTuple):
    """`dst` waits for `src`, for this reason. `src` < 0 is an allocation: number -1 - src of `Graph.allocations`.

    A tensormap edge (raw, waw) has both boxes and `covered`: the consumer's box holds the producer's whole. A creator
    edge has the consumer's box only, an explicit one neither.
    """

    src: int
    dst: int
    origin: Origin
    argument: int = -1  # of dst
    src_box: Box | None = None
    dst_box: Box | None = None
    covered: bool = False

    @property
    def buffer(self) -> int | None:
        return None if self.dst_box is None else self.dst_box.buffer


@dataclass(frozen=True)
class Allocation:
    """One `alloc_tensors` of the orchestration: a task without a kernel that is done when it is submitted.

    `before_task` is the first task submitted after it.
    """

    buffers: tuple[int, ...]
    before_task: int


@dataclass(frozen=True)
class Graph:
    """Why each task waits, in the order of submission: one edge per argument and entry found, so a pair may repeat.

    `directions` and `footprints` have one entry per argument of each task, after aliases are resolved.
    """

    edges: tuple[Edge, ...]
    allocations: tuple[Allocation, ...]
    directions: tuple[tuple[Direction, ...], ...]
    footprints: tuple[tuple[Box, ...], ...]

    @cached_property
    def pairs(self) -> dict[tuple[int, int], tuple[Origin, ...]]:
        """(src, dst) with every origin of the edge between them."""
        found: dict[tuple[int, int], dict[Origin, None]] = {}
        for edge in self.edges:
            found.setdefault((edge.src, edge.dst), {})[edge.origin] = None
        return {pair: tuple(origins) for pair, origins in found.items()}

    def counts(self) -> dict[Origin, int]:
        """Pairs of tasks per origin; a pair with two origins counts under both."""
        found = Counter(origin for origins in self.pairs.values() for origin in origins)
        return {origin: found[origin] for origin in ORIGINS}


Direction = Literal["Input", "OutputExisting", "InOut", "NoDep"]
Called = Literal["In", "Out", "InOut"]
Root = tuple[int, int, tuple[int, ...], tuple[int, ...]]
Place = tuple[int, int]  # a turn of a loop, unique in the run


def derive_directions(recording: Recording) -> Iterator[tuple[Direction, ...]]:
    """Per task one direction per argument."""
    written: dict[Root, _Writers] = {}
    for task in recording.tasks:
        sequential = any(turn.kind in ("range", "while") for turn in task.turns)
        places = [(turn.loop, turn.turn) for turn in task.turns if turn.kind != "unroll"]
        found: list[Direction] = []
        roots = []
        for argument in task.arguments:
            buffer, called = recording.buffers[argument.buffer], called_direction(argument)
            if called == "In":
                found.append("NoDep" if argument.no_dep else "Input")
                continue
            whole = (buffer.id, 0, buffer.shape, row_major(buffer.shape))
            root = _root(argument, whole)
            if root is not None:
                roots.append(root)
            prior = root in written and written[root].before(places) if root is not None else False
            enclosing = root == whole and buffer.origin == "parameter" and buffer.direction == "InOut"
            in_out = called == "InOut" or sequential or prior or enclosing
            found.append("NoDep" if argument.no_dep else "InOut" if in_out else "OutputExisting")
        yield tuple(found)
        for root in roots:
            written.setdefault(root, _Writers()).add(places)


def called_direction(argument: Argument) -> Called:
    """What the kernel's signature says, declared or inferred from its body."""
    if argument.declared in ("Out", "InOut"):
        return argument.declared
    if not argument.writes:
        return "In"
    return "InOut" if argument.reads else "Out"


def _root(argument: Argument, whole: Root) -> Root | None:
    """The statement that made the tensor, as far as a run shows it: the buffer, a slice, or (None) a reshape."""
    root = (argument.buffer, argument.offset, argument.shape, argument.strides)
    reshaped = argument.offset == 0 and argument.strides == row_major(argument.shape)
    same_size = prod(argument.shape) == prod(whole[2])
    return None if reshaped and same_size and root != whole else root


class _Writers:
    """Where a root was written, as far as a later call must know: per turn, into which loop of it the writer went."""

    HERE = -1  # in the turn itself, in no loop
    SEVERAL = -2

    def __init__(self) -> None:
        self.into: dict[Place | None, int] = {}

    def add(self, places: list[Place]) -> None:
        for place, loop in self._steps(places):
            known = self.into.setdefault(place, loop)
            if known != loop:
                self.into[place] = self.SEVERAL

    def before(self, places: list[Place]) -> bool:
        """True if a writer stands before a call at `places`: around it, but not in another turn of one loop."""
        return any(
            place in self.into and (loop == self.HERE or self.into[place] != loop)
            for place, loop in self._steps(places)
        )

    def _steps(self, places: list[Place]) -> Iterator[tuple[Place | None, int]]:
        around: Place | None = None
        for place in places:
            yield around, place[0]
            around = place
        yield around, self.HERE


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

    def __init__(self, elements: Callable[[int], int]) -> None:
        self.elements = elements  # of a buffer
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
        elements = self.elements(wanted.buffer)
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
