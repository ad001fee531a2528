"""What a task did, and the same as another task's: its boxes move with its tensors and with the numbers it is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from operator import is_, sub

import numpy as np

from npuscope.ops.numeric.arrays import Array
from npuscope.tile.record.recorder import (
    ArgumentDraft,
    BodyKey,
    Factors,
    Moving,
    Numbers,
    Offset,
    Recorder,
    Rolled,
    TaskDraft,
    still,
)
from npuscope.tile.shapes.likeness import argument_key
from npuscope.tile.values.given import Given
from npuscope.tile.values.tensors import Tensor

Terms = tuple[tuple[int, int], ...]  # numbers with their factors


@dataclass
class _Group:
    """Blocks of equal structure: where each access lies, and which of the record's `moves` it makes."""

    key: BodyKey
    blocks: list[int]
    offsets: list[Numbers]
    moves: list[int]


@dataclass
class TaskRecord:
    """What a task did."""

    numbers: tuple[int, ...]
    pinned: set[int] | None  # None: its numbers were not watched
    places: list[int]  # of each argument among the values
    tensors: list[int]  # and where it lay
    arguments: list[ArgumentDraft]
    hands_back: list[int]
    kernel: str
    firsts: list[tuple[int, int]]  # of each sum that offsets follow: its first number with its factor
    rest: list[tuple[int, int, int]]  # and the others, with the sum that they belong to
    reach: list[tuple[int, int, int]]  # how far sums may move, down and up
    moves: list[tuple[int, int]]  # with an argument, and with a sum or (-1) none
    groups: list[_Group]
    rows_at_run_time: list[int]  # arguments whose number of rows it learned not to know
    whole: list[tuple[int, Array, bool]]  # where it wrote numbers that steer the program: what it left
    last: tuple[list[Tensor], list[ArgumentDraft]] = field(default_factory=lambda: ([], []))

    def moved_to(self, numbers: tuple[int, ...]) -> list[int] | None:
        """How far the sums move with these numbers; None where a box would lie outside."""
        away = list(map(sub, numbers, self.numbers))
        moved = [away[k] * factor for k, factor in self.firsts]
        for way, k, factor in self.rest:
            moved[way] += away[k] * factor
        for way, low, high in self.reach:
            if not low <= moved[way] <= high:
                return None
        return moved

    def give(self, task: TaskDraft, values: list[object], moved: list[int] | None) -> None:
        """The record as that of another task."""
        task.kernel = self.kernel
        tensors = _tensors(values, self.places)
        away = [tensor.offset - before for tensor, before in zip(tensors, self.tensors, strict=True)]
        if moved is None:
            shifts = [away[argument] for argument, _ in self.moves]
        else:
            shifts = [away[argument] if way < 0 else away[argument] + moved[way] for argument, way in self.moves]
        for group in self.groups:
            offsets: list[Offset] = [
                offset + shifts[move] if shifts[move] else offset
                for offset, move in zip(group.offsets, group.moves, strict=True)
            ]
            task.groups[group.key] = (group.blocks, Rolled(group.key[1], [len(group.blocks)], [offsets]))
        if not all(map(is_, tensors, self.last[0])) or len(tensors) != len(self.last[0]):
            arguments = [a.like(argument_key(tensor)) for a, tensor in zip(self.arguments, tensors, strict=True)]
            self.last = (tensors, arguments)
        task.arguments = self.last[1]  # tasks with the same tensors share them
        for argument in self.rows_at_run_time:
            tensors[argument].buffer.rows_at_run_time = True
        for place, data, known in self.whole:
            (tensor,) = _tensors(values, [place])
            assert tensor.buffer.data is not None
            tensor.buffer.data[...], tensor.buffer.known = data, known


def recorded(
    task: TaskDraft,
    values: list[object],
    numbers: tuple[int, ...],
    hands_back: list[int],
    given: Given | None,
    recorder: Recorder,
    wrote: bool,
) -> TaskRecord:
    """What a task did that has just ended."""
    where = {argument_key(value): place for place, value in enumerate(values) if type(value) is Tensor}
    places = [where[argument.key] for argument in task.arguments]
    tensors = _tensors(values, places)
    for _, rolled in task.groups.values():
        rolled.offsets, rolled.counts = [rolled.along(0)], [sum(rolled.counts)]
    pinned = None
    free: list[int] = []
    if given is not None:
        accesses = [offset for _, rolled in task.groups.values() for offset in rolled.offsets[0]]
        disputed = [_disputed(offset.ways, len(numbers)) for offset in accesses if isinstance(offset, Moving)]
        pinned = given.pinned.union(*disputed)
        free = [k for k in range(len(numbers)) if k not in pinned]
    sums: dict[Terms, int] = {}
    moves: dict[tuple[int, int], int] = {}
    groups = []
    for key, (blocks, rolled) in task.groups.items():
        found = []
        for argument, offset in zip(recorder.arguments_of(key), rolled.offsets[0], strict=True):
            terms = _terms(next(filter(None, offset.ways)), free) if isinstance(offset, Moving) else ()
            way = sums.setdefault(terms, len(sums)) if terms else -1
            found.append(moves.setdefault((argument, way), len(moves)))
        plain = [np.atleast_1d(np.asarray(still(offset), np.int64)) for offset in rolled.offsets[0]]
        rolled.offsets = [list(plain)]
        groups.append(_Group(key, blocks, plain, found))
    reach: dict[int, tuple[int, int]] = {}
    for factors, (low, high) in {}.items() if given is None else given.reach.items():
        terms = _terms(factors, free)
        if terms:
            way = sums.setdefault(terms, len(sums))
            down, up = reach.get(way, (low, high))
            reach[way] = (max(low, down), min(high, up))
    kept = {tensor.buffer.id: (k, tensor.buffer) for k, tensor in enumerate(values) if wrote and type(tensor) is Tensor}
    return TaskRecord(
        numbers=numbers,
        pinned=pinned,
        places=places,
        tensors=[tensor.offset for tensor in tensors],
        arguments=[argument.like(argument.key) for argument in task.arguments],
        hands_back=hands_back,
        kernel=task.kernel,
        firsts=[terms[0] for terms in sums],
        rest=[(way, *term) for way, terms in enumerate(sums) for term in terms[1:]],
        reach=[(way, low, high) for way, (low, high) in reach.items()],
        moves=list(moves),
        groups=groups,
        rows_at_run_time=[k for k, tensor in enumerate(tensors) if tensor.buffer.rows_at_run_time],
        whole=[(k, b.data.copy(), b.known) for k, b in kept.values() if b.data is not None],
    )


def _disputed(ways: frozenset[Factors], count: int) -> set[int]:
    """The numbers that some of an access's offsets follow in one way and some in another."""
    full = [way or (0,) * count for way in ways]
    return {k for k in range(count) if len({way[k] for way in full}) > 1}


def _terms(factors: Factors, free: list[int]) -> Terms:
    """A sum without what is pinned."""
    return tuple([(k, factors[k]) for k in free if factors[k]])


def _tensors(values: list[object], places: list[int]) -> list[Tensor]:
    return [value for value in (values[place] for place in places) if isinstance(value, Tensor)]
