"""The GM buffers of one run, in which of two memories they are used, and which values steer a program.

Python runs a program in its own order of tasks. Another order is a sequence of phases, each an ascending list of tasks;
for each phase the whole program runs once more with two memories. Tasks of the phase read and write the *order's*
memory, which begins as the phase before left it. All others, and the orchestration, keep to the *program's* memory,
where every task writes, so that loops and branches take their usual way.

A run in `shapes` mode that comes to a branch, a bound or an index on a value that nobody computed ends there, and its
record so far says where that value came from: the tensors that it was read from, the tasks that wrote these, the
tensors that those tasks read, and so on to inputs. The program then runs again, and this *slice* of it computes: its
tasks run turn by turn, with numbers; its tensors keep theirs. All else goes by shape, as before, and inputs outside of
the slice are never made. A slice is known by lines of source, so one turn of a loop over layers speaks for all turns;
where it was too small, the next run says so, and the slice grows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from npuscope.ops import storage
from npuscope.ops.dtypes import Array, DataType
from npuscope.tile.graph.boxes import row_major
from npuscope.tile.record import model, sites
from npuscope.tile.record.model import Origin
from npuscope.tile.record.recorder import Recorder, TaskDraft
from npuscope.tile.values.lanes import Plain
from npuscope.tile.values.tensors import LiveBuffer, Shape, Tensor


@dataclass(frozen=True)
class Slice:
    """Tensors by the line that made them, parameters by name; tasks by the line that launches them."""

    tensors: frozenset[tuple[Origin, int | str]] = frozenset()
    tasks: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.tensors)

    def has(self, origin: Origin, name: str, site: int) -> bool:
        """Whether a tensor keeps its numbers."""
        return (origin, name if origin == "parameter" else site) in self.tensors

    def with_all_behind(self, origins: Iterable[object], recorder: Recorder) -> Slice:
        """The slice, and what these tensors and tasks of a record are made of."""
        writers: dict[int, list[TaskDraft]] = defaultdict(list)
        joined: dict[int, set[int]] = defaultdict(set)
        for task in recorder.tasks:
            for argument in task.arguments:
                if argument.writes:
                    writers[argument.key[0]].append(task)
        for alias in recorder.aliases:
            joined[alias.part].add(alias.whole)
            joined[alias.whole].add(alias.part)
        origins = list(origins)
        waiting = [one.id for one in origins if isinstance(one, LiveBuffer) and one.id >= 0]
        waiting += [read.buffer for read in recorder.host_reads]  # numbers that tasks are given
        tasks = {id(one): one for one in origins if isinstance(one, TaskDraft)}
        for task in tasks.values():
            waiting += [argument.key[0] for argument in task.arguments if argument.reads]
        buffers: set[int] = set()
        while waiting:
            buffer = waiting.pop()
            if buffer in buffers:
                continue
            buffers.add(buffer)
            waiting += joined[buffer]
            for task in writers[buffer]:
                if id(task) not in tasks:
                    tasks[id(task)] = task
                    waiting += [argument.key[0] for argument in task.arguments if argument.reads]
        made = [recorder.buffers[buffer] for buffer in buffers]
        tensors = {(one.origin, one.name if one.origin == "parameter" else one.site) for one in made}
        return Slice(self.tensors | tensors, self.tasks | {task.site for task in tasks.values()})


Contents = Mapping[int, Array]  # flat, by the number of the buffer
_ONE = (True,)


@dataclass(frozen=True)
class OrderPhase:
    """`initial`: parameters that may be written, as the first run found them; `contents`: what phases before left."""

    initial: Contents
    contents: Contents = field(default_factory=dict)
    tasks: frozenset[int] | None = None  # None: all
    blocks: Mapping[int, Sequence[int]] = field(default_factory=dict)  # task -> order of its blocks, where not 0, 1, …

    def has(self, task: int | None) -> bool:
        return task is not None and (self.tasks is None or task in self.tasks)


class Allocations:
    """`keeps`: what parameters held at the start stays known, for runs in another order."""

    def __init__(self, recorder: Recorder, computes: bool, keeps: bool, phase: OrderPhase | None, slice: Slice) -> None:
        self.buffers: list[LiveBuffer] = []
        self._run = object()
        self.initial: dict[int, Array] | None = {} if keeps else None  # of parameters that may be written
        self.phase, self.slice = phase, slice
        self._recorder, self._computes = recorder, computes
        self._ordered = False  # whether the order's memory is in use; else it lies aside

    def add(
        self,
        name: str,
        shape: Shape,
        dtype: DataType,
        data: Array | Callable[[], Array] | None,
        *,
        origin: model.Origin = "created",
        direction: model.Direction | None = None,
        manual_dep: bool = False,
        written: bool = False,
    ) -> LiveBuffer:
        """A new buffer that holds this data; `written`: all of it counts as written."""
        id, recorder, parameter = len(self.buffers), self._recorder, origin == "parameter"
        mask = np.zeros(prod(shape), np.bool_) if self._computes and not written else None
        buffer = LiveBuffer(id, name or f"tensor_{id}", shape, dtype, data, mask)
        buffer.run, buffer.read_only = self._run, parameter and direction == "In"
        if self.phase is not None or self.initial is not None:
            self._keep(buffer, parameter)
        self.buffers.append(buffer)
        recorder.buffers.append(
            model.Buffer(
                id=id,
                name=buffer.name,
                shape=shape,
                dtype=dtype.name,
                origin=origin,
                site=sites.here(),
                direction=direction,
                manual_dep=manual_dep,
                before_task=len(recorder.tasks),
                turns=() if parameter else tuple(recorder.turns),
                scopes=tuple(recorder.scopes),
                filled=origin == "created" and written,
            )
        )
        return buffer

    def create(
        self,
        name: str,
        shape: Shape,
        dtype: DataType,
        fill: Plain | None = None,
        *,
        origin: model.Origin = "created",
        manual_dep: bool = False,
    ) -> Tensor:
        """A new GM tensor; without a fill it holds poison."""
        data = None
        keeps = self._computes or dtype.steers or (bool(self.slice) and self.slice.has(origin, name, sites.here()))
        if keeps and dtype.storage is not None:
            data = np.full(prod(shape), storage.poison(dtype) if fill is None else fill, dtype.storage)
        written = fill is not None
        buffer = self.add(name, shape, dtype, data, origin=origin, manual_dep=manual_dep, written=written)
        if data is not None and not self._computes:  # its elements go with the program's last tensor of it
            self.buffers[-1] = replace(buffer, source=None)
        return Tensor(buffer, 0, shape, row_major(shape))

    def has(self, buffer: LiveBuffer) -> bool:
        """Whether it is one of this run's."""
        return buffer.run is self._run

    # --- runs in another order

    def _keep(self, buffer: LiveBuffer, parameter: bool) -> None:
        """What the caller's arrays held stays known, and in a phase the buffer gets its second memory."""
        if buffer.data is None:
            return
        if buffer.read_only:
            buffer.data = buffer.data.view()
            buffer.data.flags.writeable = False
        elif self.initial is not None and parameter:
            self.initial[buffer.id] = buffer.data.copy()
        if self.phase is None:
            return
        if buffer.id in self.phase.initial:
            buffer.data = self.phase.initial[buffer.id].copy()
        before = self.phase.contents.get(buffer.id, buffer.data)
        buffer.aside = before.copy() if before.flags.writeable else before  # what nobody writes is shared
        buffer.written = np.zeros(len(buffer.data), np.bool_)  # in the order's memory, by this phase
        if self._ordered:
            buffer.swap()

    def use(self, task: int | None) -> None:
        """What runs next: a task, or the orchestration."""
        if self.phase is not None:
            self._switch(self.phase.has(task))

    def _switch(self, ordered: bool) -> None:
        if ordered != self._ordered:
            self._ordered = ordered
            for buffer in self.buffers:
                buffer.swap()

    def memories_of(self, buffer: LiveBuffer, task: int | None) -> Iterable[bool]:
        """The memories that a write of a task goes to, each in use for a turn: whether it is the one that counts."""
        return _ONE if self.phase is None else self._of_write(buffer, self.phase.has(task))

    def _of_write(self, buffer: LiveBuffer, counts: bool) -> Iterator[bool]:
        for ordered in (False, True) if counts else (False,):
            other = ordered != self._ordered
            if other:
                buffer.swap()
            yield ordered
            if other:
                buffer.swap()

    def each_memory(self, task: int) -> Iterable[bool]:
        """The same for all buffers at once."""
        return _ONE if self.phase is None else self._in_turn(self.phase.has(task))

    def _in_turn(self, counts: bool) -> Iterator[bool]:
        before = self._ordered
        for ordered in (False, True) if counts else (False,):
            self._switch(ordered)
            yield ordered
        self._switch(before)

    def order_contents(self) -> dict[int, Array]:
        """The order's memory after a phase."""
        return {b.id: b.aside for b in self.buffers if b.aside is not None and b.aside.flags.writeable}
