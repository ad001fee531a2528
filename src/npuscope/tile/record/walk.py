"""Bodies read again: ops in the order in which they ran, who made each operand, who wrote an element last.

A step is an op as it is stored: once per segment of equal turns. What a loop carries was made by another step in its
first turn than in later ones, so an operand may have several makers. A turn that ran no op is not stored: "one turn
ago" is the stored turn before, "two turns or more" may be any earlier one, of the same segment one at least two before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from npuscope.tile.record.model import (
    Access,
    Alias,
    Argument,
    BlockGroup,
    Body,
    Loop,
    Op,
    Recording,
    Ref,
    Site,
    Task,
    TileType,
)

Counts = tuple[int, ...]  # iterations of the segments around an op, outermost first


@dataclass(frozen=True, slots=True)
class Around:
    """A loop around an op: where it stands among the items around it, and which of its segments the op is in."""

    loop: Loop
    index: int
    segment: int

    @property
    def count(self) -> int:
        """Turns of the segment."""
        return self.loop.segments[self.segment].count


def walk(body: Body) -> Iterator[tuple[Op, int, tuple[Around, ...]]]:
    """Every stored op once with its index and the loops around it, outermost first.

    In the order of a BlockGroup's offsets: the prologue, then depth first through segments.
    """
    for index, op in enumerate(body.prologue):
        yield op, index, ()
    yield from _walk(body.items, ())


def _walk(items: tuple[Op | Loop, ...], around: tuple[Around, ...]) -> Iterator[tuple[Op, int, tuple[Around, ...]]]:
    for index, item in enumerate(items):
        if isinstance(item, Op):
            yield item, index, around
        else:
            for number, segment in enumerate(item.segments):
                yield from _walk(segment.items, (*around, Around(item, index, number)))


def ops_of(body: Body) -> Iterator[tuple[Op, Counts]]:
    """Every stored op once, in order, with how often each segment around it is run."""
    for op, _, around in walk(body):
        yield op, tuple([loop.count for loop in around])


def accesses_of(body: Body) -> Iterator[tuple[Op, Access, Counts]]:
    """The accesses of a body in the order of its offsets."""
    for op, counts in ops_of(body):
        for access in op.accesses:
            yield op, access, counts


Numbers = npt.NDArray[np.int64]
MOST_ASKED = 256  # elements
Position = tuple[int, ...]  # index and segment of each loop around, outermost first; of an op its own index last


@dataclass(frozen=True, slots=True)
class StepOperand:
    """`now`: the step that makes it in this turn, or `again` the one that made it in an earlier turn of this segment;
    `before`: those of earlier segments, the nearest first. All empty for numbers.
    """

    ref: Ref | None
    now: int | None = None
    again: int | None = None
    before: tuple[int, ...] = ()

    @property
    def makers(self) -> tuple[int, ...]:
        """Every step that may have made it, the earliest first."""
        last = self.now if self.now is not None else self.again
        return (*sorted(self.before), *(() if last is None else (last,)))


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """A stored op and the loops around it, outermost first; `times`: how often it runs in a block."""

    number: int  # its place in the order of a BlockGroup's offsets
    op: Op
    around: tuple[Around, ...]
    operands: tuple[StepOperand, ...]
    times: int

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(loop.count for loop in self.around)

    @property
    def loops(self) -> Position:
        """Which loops are around it, whatever segment of each: by their indices."""
        return tuple(loop.index for loop in self.around)

    @property
    def loads(self) -> bool:
        """Whether it reads one box of GM into a tile."""
        return self.op.plane == "load" and len(self.op.accesses) == 1

    @property
    def stores(self) -> bool:
        """Whether it writes (or adds) a tile to one box of GM."""
        return self.op.plane == "store" and len(self.op.accesses) == 1

    @property
    def result(self) -> TileType:
        """The tile that it makes; to be asked of steps that make one."""
        assert self.op.result is not None
        return self.op.result


def steps_of(body: Body) -> tuple[Step, ...]:
    """The steps of a body, in the order of a BlockGroup's offsets."""
    resolver = _Resolver(body)
    return tuple(
        Step(
            number,
            op,
            around,
            tuple([resolver.operand(one, around) for one in op.operands]),
            prod([loop.count for loop in around]),
        )
        for number, (op, _, around) in enumerate(walk(body))
    )


class _Resolver:
    def __init__(self, body: Body) -> None:
        self.makers: dict[Position, int] = {}  # place of an op that makes a tile -> its step
        self.segments: dict[Position, int] = {}  # place of a loop -> how many it has
        for number, (op, index, around) in enumerate(walk(body)):
            place: Position = ()
            for loop in around:
                self.segments[*place, loop.index] = len(loop.loop.segments)
                place = (*place, loop.index, loop.segment)
            if op.result is not None and number >= len(body.prologue):
                self.makers[*place, index] = number

    def operand(self, given: object, around: tuple[Around, ...]) -> StepOperand:
        if not isinstance(given, Ref):
            return StepOperand(None)
        if given.up < 0:
            return StepOperand(given, now=given.path[0])
        outer = around[: max(len(around) - given.up, 0)]
        place = tuple([part for loop in outer for part in (loop.index, loop.segment)])
        if not given.back or not outer:
            return StepOperand(given, now=self._at(place, given.path))
        loop = outer[-1]
        again = self._at(place, given.path) if loop.count > given.back else None
        first = max(loop.segment - 1, 0) if given.back == 1 else 0
        return StepOperand(given, again=again, before=self._before(place[:-1], loop, given, first))

    def _before(self, place: Position, loop: Around, ref: Ref, first: int) -> tuple[int, ...]:
        """Earlier segments that have a maker; last those too near, unless turns that ran nothing lie between."""
        near: list[int] = []
        far: list[int] = []
        ago = 0
        for segment in range(loop.segment - 1, first - 1, -1):
            ago += loop.loop.segments[segment].count
            made = self._at((*place, segment), ref.path)
            if made is not None:
                (far if ago >= ref.back else near).append(made)
        return (*far, *near)

    def _at(self, place: Position, path: tuple[int, ...]) -> int | None:
        """The step at a path; a loop on the way stands for its last turn that has such a step."""
        if len(path) == 1:
            return self.makers.get((*place, *path))
        inner = (*place, path[0])
        found = (self._at((*inner, n), path[1:]) for n in reversed(range(self.segments.get(inner, 0))))
        return next((number for number in found if number is not None), None)


@dataclass(frozen=True)
class Write:
    """The op that wrote an element."""

    op: str
    kernel: str
    task: int
    site: Site

    def __str__(self) -> str:
        return f"{self.op} in {self.kernel} (task {self.task}) at {Path(self.site.file).name}:{self.site.line}"


def last_writer(recording: Recording, buffer: int, element: int) -> Write | None:
    """The op that last wrote an element (counted in its buffer), in program order, through aliases too."""
    found = [_direct_writer(recording, buffer, element)]
    for alias in recording.aliases:
        inside = _index_in(alias, element) if alias.whole == buffer else None
        if inside is None:
            continue
        if recording.buffers[alias.part].shape == alias.shape:
            found.append(last_writer(recording, alias.part, inside))
        else:  # a view of the part was joined, and the record does not say which
            found.append(Write("assemble", "orchestration", alias.before_task - 1, recording.sites[alias.site]))
    return max((write for write in found if write is not None), key=lambda write: write.task, default=None)


def _direct_writer(recording: Recording, buffer: int, element: int) -> Write | None:
    for task, writes in _writes(recording, buffer):
        found = [op for op, access, offsets in writes if are_in(access, offsets, np.array([element]))[0]]
        if found:
            return Write(found[-1].name, task.kernel, task.id, recording.sites[found[-1].site])
    return None


def earliest(recording: Recording, buffer: int, elements: npt.NDArray[np.int64]) -> int:
    """Of these elements one whose last write is the earliest; of very many, some hundred spread over them are asked."""
    left = elements
    if len(elements) > MOST_ASKED:
        left = elements[np.linspace(0, len(elements) - 1, MOST_ASKED).astype(np.int64)]
    found: list[int] = []
    for _, writes in _writes(recording, buffer):
        touched = np.zeros(len(left), np.bool_)
        for _, access, offsets in writes:
            touched |= are_in(access, offsets, left)
        if np.any(touched):
            found = [int(left[touched][0])]
            left = left[~touched]
    # what no task wrote came through an alias, or was there before
    found += [int(element) for element in left[:1]]
    return min(found, key=lambda element: getattr(last_writer(recording, buffer, element), "task", -1))


def _writes(recording: Recording, buffer: int) -> Iterator[tuple[Task, list[tuple[Op, Access, npt.NDArray[np.int64]]]]]:
    """Tasks that write to a buffer, the last first, with their writes in order."""
    for task in reversed(recording.tasks):
        numbers = {n for n, argument in enumerate(task.arguments) if argument.buffer == buffer and argument.writes}
        if numbers:
            yield (
                task,
                [
                    (op, access, offsets)
                    for group in task.groups
                    for (op, access, _), offsets in zip(
                        accesses_of(recording.bodies[group.body]), group.offsets, strict=True
                    )
                    if access.mode != "read" and access.argument in numbers
                ],
            )


def _index_in(alias: Alias, element: int) -> int | None:
    """The flat index in the part of an element of the whole; None where the part does not have it."""
    rest = element - alias.offset
    places = [0] * len(alias.shape)
    for k in sorted(range(len(alias.shape)), key=lambda k: -alias.strides[k]):
        if alias.shape[k] > 1:
            places[k], rest = divmod(rest, alias.strides[k])
        if not 0 <= places[k] < alias.shape[k]:
            return None
    return int(np.ravel_multi_index(places, alias.shape)) if rest == 0 else None


def are_in(access: Access, offsets: npt.NDArray[np.int64], elements: Numbers) -> npt.NDArray[np.bool_]:
    """Which of the elements lie in any of the boxes."""
    rest = elements[:, None] - offsets.reshape(1, -1)
    inside = rest >= 0
    for k in sorted(range(len(access.shape)), key=lambda k: -access.strides[k]):
        stride, extent = access.strides[k], access.shape[k]
        if extent == 1 or stride == 0:
            continue
        index = rest // stride
        inside &= index < extent
        rest = rest - index * stride
    return np.asarray(np.any(inside & (rest == 0), axis=1))


def same_work(a: Sequence[Recording], b: Sequence[Recording]) -> bool:
    """Of runs in one process, whose lines have the same numbers."""
    return len(a) == len(b) and all(_same(one, other) for one, other in zip(a, b, strict=True))


def _same(a: Recording, b: Recording) -> bool:
    whole = a.program == b.program and (a.buffers, a.aliases, a.host_reads) == (b.buffers, b.aliases, b.host_reads)
    if not whole or (a.bodies, a.auto_scope, a.rings, a.runtime) != (b.bodies, b.auto_scope, b.rings, b.runtime):
        return False
    return len(a.tasks) == len(b.tasks) and all(map(_same_task, a.tasks, b.tasks))


def _same_task(a: Task, b: Task) -> bool:
    if len(a.groups) != len(b.groups) or replace(a, groups=()) != replace(b, groups=()):
        return False
    return all(map(_same_group, a.groups, b.groups))


def _same_group(a: BlockGroup, b: BlockGroup) -> bool:
    if a.body != b.body or len(a.offsets) != len(b.offsets) or not np.array_equal(a.blocks, b.blocks):
        return False
    return all(map(np.array_equal, a.offsets, b.offsets))


# --- what the runtime sees of the tensors of a task


def windowed(
    arguments: tuple[Argument, ...], groups: Sequence[BlockGroup], bodies: Sequence[Body], alone: bool
) -> tuple[Argument, ...]:
    """The arguments of a task with `windowize=True`: of each what it touches, where that is one box.

    A tensor that is only written may be written piece by piece; one that is only read must be read as one box, and
    unless `alone` (no deps=, no early resolve) some written tensor must have become a box, too. Others stay whole.
    """
    touched: dict[int, list[tuple[Access, npt.NDArray[np.int64]]]] = {}
    for group in groups:
        accesses = (access for op, _ in ops_of(bodies[group.body]) for access in op.accesses)
        for access, offsets in zip(accesses, group.offsets, strict=True):
            touched.setdefault(access.argument, []).append((access, np.unique(offsets)))
    found = {n: _window(arguments[n], boxes) for n, boxes in touched.items()}
    written = [n for n, box in found.items() if box is not None and arguments[n].writes]
    if len({arguments[n].buffer for n in written}) < len(written):
        written = []  # two windows of one tensor: it stays whole for this call
    kept = [n for n in found if not arguments[n].writes] if written or alone else []
    return tuple([found.get(n) or a if n in (*written, *kept) else a for n, a in enumerate(arguments)])


def _window(argument: Argument, boxes: list[tuple[Access, npt.NDArray[np.int64]]]) -> Argument | None:
    """The one box that these boxes are or fill, of an argument that is either read or written."""
    steps = argument.strides
    if (argument.reads and argument.writes) or steps != tuple(sorted(steps, reverse=True)) or 0 in steps:
        return None
    starts: set[tuple[int, ...]] = set()
    sizes: set[tuple[int, ...]] = set()
    for access, offsets in boxes:
        size = dict.fromkeys(steps, 1)
        for extent, step in zip(access.shape, access.strides, strict=True):
            if extent > 1 and (step not in size or size[step] > 1):
                return None
            size[step] = max(extent, size.get(step, 1))
        sizes.add(tuple([size[step] for step in steps]))
        for rest in (offsets - argument.offset).tolist():
            digits = []
            for step in steps:
                digit, rest = divmod(rest, step)
                digits.append(digit)
            starts.add(tuple(digits))
    if len(sizes) > 1 or (len(starts) > 1 and not argument.writes):
        return None
    (size_,) = sizes
    first = [min(start) for start in zip(*starts, strict=True)]
    shape = tuple([max(s) - low + n for s, low, n in zip(zip(*starts, strict=True), first, size_, strict=True)])
    if prod(shape) != len(starts) * prod(size_):
        return None  # holes, or pieces on top of each other
    offset = argument.offset + sum(low * step for low, step in zip(first, steps, strict=True))
    return replace(argument, offset=offset, shape=shape)
