"""Tasks of one kind, run as one: a lane to each block of each task, as the blocks of one launch are (lanes.py).

The body runs with the first task's tensors. What it records of an argument holds for every task's own tensor at the
same place, shifted by the distance of the two, since ops place what they touch relative to the tensor. Lanes that
behave otherwise than the first are run again after it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from npuscope.tile.record.frames import Offset, Rolled
from npuscope.tile.record.recorder import ArgumentDraft, Key, TaskDraft
from npuscope.tile.run.aiv import check_block
from npuscope.tile.run.state import Block, Run
from npuscope.tile.shapes.outside import Outside
from npuscope.tile.shapes.steering import end_pass
from npuscope.tile.values.lanes import AXES, Lane
from npuscope.tile.values.tensors import Tensor

KEPT = -1  # a name that a task does not bind
_MOST_LANES = 4096  # arrays of offsets have one column to a lane
Numbers = npt.NDArray[np.int64]


class Differs(BaseException):
    """A task did something that the first of its kind did not."""


class Waiting:
    """A task that waits: what its body takes, and the buffers that it opts out of."""

    __slots__ = ("no_dep", "task", "values")

    def __init__(self, task: TaskDraft, values: list[Any]) -> None:
        self.task, self.values = task, values
        self.no_dep: set[int] = set()


class Kind:
    """Tasks that differ only in whole numbers and in where their tensors lie."""

    def __init__(
        self,
        body: Callable[..., Any],
        blocks: int,
        outside: Outside,
        left: tuple[str, ...],
        carried: bool,
    ) -> None:
        self.body, self.blocks, self.outside = body, blocks, outside
        self.left = left  # names that code after a task may read,
        self.hands_back: list[int] = []  # and which argument each stands for then
        self.carried = carried  # whether pl.yield_ could have told a loop around the task something
        self.waiting: list[Waiting] = []
        self.first: Waiting | None = None  # of tasks whose numbers are equal too: the one that ran
        self._steering: list[tuple[int, Any, bool]] = []  # place of an argument, its whole numbers, whether known

    def keep_first(self, first: Waiting) -> None:
        """The task that ran; the others leave the whole numbers that it left."""
        self.first, self._steering = first, _steering(first.values)

    def add(self, waiting: Waiting) -> None:
        """A task that follows."""
        if self.first is not None:
            for place, data, known in self._steering:
                buffer = waiting.values[place].buffer
                buffer.data[...], buffer.known = data, known
        elif not self.waiting:  # others may be written before the tasks run
            self._steering = _steering(waiting.values)
        self.waiting.append(waiting)

    def swap_steering(self) -> None:
        """Puts the whole numbers kept in their place, and keeps what was there."""
        for k, (place, data, known) in enumerate(self._steering):
            buffer = self.waiting[0].values[place].buffer
            self._steering[k] = (place, buffer.data, buffer.known)
            buffer.data, buffer.known = data, known


def _steering(values: list[Any]) -> list[tuple[int, Any, bool]]:
    places = {v.buffer.id: k for k, v in enumerate(values) if type(v) is Tensor and v.buffer.data is not None}
    return [(k, values[k].buffer.data.copy(), values[k].buffer.known) for k in places.values()]


def marks(run: Run) -> Key:
    """Counts of all that a task can leave behind besides its record and whole numbers."""
    recorder = run.recorder
    counted = (run.buffers, recorder.notes, recorder.host_reads, recorder.aliases)
    carried = [id(carry[0]) for carry in run.carries]  # what pl.yield_ told the loops around
    return (run.barriers, run.opt_outs, recorder.said, *(len(held) for held in counted), *carried)


def argument_key(tensor: Tensor) -> Key:
    """What a task knows an argument by."""
    return (tensor.buffer.id, tensor.offset, tensor.shape, tensor.strides)


def run_all(run: Run, kind: Kind) -> None:
    """Records every task of a kind that waits."""
    if kind.first is not None:
        for waiting in kind.waiting:
            _copy(kind.first, waiting, run)
        return
    if kind.carried:
        run.carries.append([kind])  # stands for the loop around
    before = (run.writes, marks(run))
    most = max(1, _MOST_LANES // kind.blocks)
    kind.swap_steering()
    try:
        for first in range(0, len(kind.waiting), most):
            _Pass(run, kind, kind.waiting[first : first + most]).run()
    finally:
        kind.swap_steering()
        run.block = None
    if (run.writes, marks(run)) != before:
        raise Differs
    del run.carries[:]


def _copy(first: Waiting, waiting: Waiting, run: Run) -> None:
    """Gives a task the record of one that differs from it only in where its tensors lie."""
    places = [_places(first.values)[argument.key] for argument in first.task.arguments]
    shifts = [waiting.values[place].offset - first.values[place].offset for place in places]
    for key, (numbers, rolled) in first.task.groups.items():
        by = [shifts[number] for number in run.recorder.arguments_of(key)]
        offsets = [[x + shift for x, shift in zip(part, by, strict=True)] for part in rolled.offsets]
        waiting.task.groups[key] = (list(numbers), Rolled(rolled.items, list(rolled.counts), offsets))
    waiting.task.arguments = _arguments(waiting, first.task.arguments, places)


def _places(values: list[Any]) -> dict[Key, int]:
    """By what a task knows an argument, and its place among the values."""
    return {argument_key(value): place for place, value in enumerate(values) if type(value) is Tensor}


class _Pass:
    """Some tasks of a kind; their blocks in order, block 0 of every task first."""

    def __init__(self, run: Run, kind: Kind, waiting: list[Waiting]) -> None:
        self._run, self._kind, self._waiting = run, kind, waiting
        self._first = kind.waiting[0].values
        self._columns = [
            np.array([w.values[k] for w in waiting], np.int64) if type(value) is int else None
            for k, value in enumerate(self._first)
        ]
        self._places = _places(self._first)
        self._shifts: dict[int, Numbers | None] = {}
        task = waiting[0].task
        start = _Twin(task.id, task.kernel, task.site, task.blocks, task.form, dict(task.options))
        self._drafts = [start] * len(waiting)  # what is known of each task's arguments so far

    def run(self) -> None:
        count = len(self._waiting)
        lanes = np.arange(count * self._kind.blocks, dtype=np.int64)
        alone = 0
        total = len(lanes)
        while len(lanes):
            done = total - len(lanes)
            # Lanes that never go together are run one by one, with plain numbers; now and then more are tried.
            width = self._alike(lanes) if alone < 2 or done & (done - 1) == 0 else 1
            kept = self._run_lanes(lanes[:width])
            alone = alone + 1 if kept == 1 else 0
            lanes = self._in_order(lanes, kept, width)
        made: dict[Key, list[ArgumentDraft]] = {}  # tasks with the same tensors share their arguments
        for waiting, draft in zip(self._waiting, self._drafts, strict=True):
            places = draft.places(self._places)
            about = (id(draft), tuple([id(waiting.values[place]) for place in places]), *sorted(waiting.no_dep))
            if about not in made:
                made[about] = _arguments(waiting, draft.arguments, places)
            waiting.task.arguments = made[about]
            for name in draft.names:
                waiting.task.called(name)

    def _alike(self, lanes: Numbers) -> int:
        """How many lanes from the first on are of tasks with one history."""
        if self._kind.blocks == 1:
            return len(lanes)
        first = self._drafts[lanes[0] % len(self._waiting)]
        tasks = (lanes[: len(self._waiting)] % len(self._waiting)).tolist()
        return next((k for k, task in enumerate(tasks) if self._drafts[task] is not first), len(lanes))

    def _in_order(self, lanes: Numbers, kept: int, width: int) -> Numbers:
        """The lanes left; of tasks with one block those first that went with the first lane as far as it could tell."""
        agreed = AXES.agreed
        rest = lanes[kept:]
        if self._kind.blocks > 1 or agreed is None or len(agreed) != width:
            return rest
        like = np.concatenate([agreed[kept:], np.zeros(len(lanes) - width, np.bool_)])
        return np.concatenate([rest[like], rest[~like]])

    def _run_lanes(self, lanes: Numbers) -> int:
        """One pass of the body; how many of the lanes it stood for."""
        run, kind, count = self._run, self._kind, len(self._waiting)
        tasks, blocks = lanes % count, lanes // count
        draft = self._drafts[tasks[0]].copy()
        AXES.open(len(lanes))
        block = run.block = Block(draft, int(blocks[0]), _number(blocks), kind.blocks)
        values = [
            value if column is None else _number(column[tasks])
            for value, column in zip(self._first, self._columns, strict=True)
        ]
        after = kind.body(*values) if draft.form == "at" else kind.body(block.index, *values)
        if blocks[AXES.sizes[0] - 1] == kind.blocks - 1:
            self._check_left(after)
        if block.splits:
            check_block(run.recorder, block)
        block.root.open = False
        offsets = [AXES.trim(x) if not isinstance(x, int) else x for x in block.prologue_offsets + block.root.offsets]
        kept = end_pass(run)
        self._hand_out(tasks[:kept], blocks[:kept], block, offsets)
        for task in set(tasks[:kept].tolist()):
            self._drafts[task] = draft
        return kept

    def _check_left(self, after: dict[str, Any]) -> None:
        for name, place in zip(self._kind.left, self._kind.hands_back, strict=True):
            if (name in after) != (place != KEPT) or (place != KEPT and after[name] is not self._first[place]):
                raise Differs

    def _hand_out(self, tasks: Numbers, blocks: Numbers, block: Block, offsets: list[Offset]) -> None:
        """Gives each task its blocks with its own offsets."""
        key = (tuple(block.prologue), tuple(block.root.items))
        shifted = [
            self._shifted(offset, block.task.arguments[number].key, tasks)
            for number, offset in zip(self._run.recorder.arguments_of(key), offsets, strict=True)
        ]
        step = len(self._waiting) if self._kind.blocks > 1 else len(tasks)
        for k in range(min(step, len(tasks))):
            mine = slice(k, None, step)
            numbers, rolled = self._waiting[tasks[k]].task.groups.setdefault(key, ([], Rolled(key[1])))
            numbers.extend(blocks[mine].tolist())
            rolled.counts.append(len(blocks[mine]))
            rolled.offsets.append([x if x.shape[-1] == 1 else x[..., mine] for x in shifted])

    def _shifted(self, offset: Offset, argument: Key, tasks: Numbers) -> Numbers:
        """The offsets of an access, for the tensors of these tasks."""
        here = np.atleast_1d(np.asarray(offset, np.int64))
        if here.shape[-1] not in (1, len(tasks)):
            raise Differs
        place = self._places[argument]
        if place not in self._shifts:
            distance = np.array([w.values[place].offset for w in self._waiting], np.int64) - self._first[place].offset
            self._shifts[place] = distance if np.any(distance) else None
        shift = self._shifts[place]
        return here if shift is None else here + shift[tasks]


class _Twin(TaskDraft):
    """Stands for several tasks; remembers the kernels it was called after."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.names: list[str] = []
        self._places: list[int] = []

    def called(self, kernel: str) -> None:
        self.names.append(kernel)

    def places(self, known: dict[Key, int]) -> list[int]:
        """The place of each argument among the values, worked out when all are there."""
        if len(self._places) != len(self.arguments):
            self._places = [known[argument.key] for argument in self.arguments]
        return self._places

    def copy(self) -> _Twin:
        new = copy.copy(self)
        new.arguments = [argument.like(argument.key) for argument in self.arguments]
        new.by_tensor, new.declared, new.names = dict(self.by_tensor), dict(self.declared), list(self.names)
        return new


def _number(values: Numbers) -> Any:
    """One number for all lanes, where it is."""
    first = int(values[0])
    return first if len(values) == 1 or bool(np.all(values == first)) else Lane(values)


def _arguments(waiting: Waiting, like: Sequence[ArgumentDraft], places: Sequence[int]) -> list[ArgumentDraft]:
    """A task's own arguments."""
    made = [argument.like(argument_key(waiting.values[place])) for argument, place in zip(like, places, strict=True)]
    for argument in made:
        argument.no_dep = argument.key[0] in waiting.no_dep
    return made
