"""Which values steer a program: those that `shapes` mode computes besides whole numbers.

A run in `shapes` mode that comes to a branch, a bound or an index on a value that nobody computed ends there, and its
record so far says where that value came from: the tensors that it was read from, the tasks that wrote these, the
tensors that those tasks read, and so on to inputs. The program then runs again, and this *slice* of it computes: its
tasks run turn by turn, with numbers; its tensors keep theirs. All else goes by shape, as before, and inputs outside of
the slice are never made. A slice is known by lines of source, so one turn of a loop over layers speaks for all turns;
where it was too small, the next run says so, and the slice grows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from npuscope.tile.record.model import Origin
from npuscope.tile.record.recorder import Recorder, TaskDraft
from npuscope.tile.values.tensors import LiveBuffer


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
