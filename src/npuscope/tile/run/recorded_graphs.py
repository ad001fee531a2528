"""Graphs that the runtime records at their first call and replays later: whether a later call is a replay of it.

A replay has the tasks, loops and new tensors of the first call; it takes over only where the tensors of the call lie
and which numbers it was given. A loop of the graph has the same turns in each call, so its variable may say where a
task reads. A view inside the graph may follow the numbers, then it is taken at the call, or a loop, then it is
recorded; one that follows both is neither. (pypto docs/en/dev/passes/50-legalize_graph_boundary.md)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from npuscope.tile.fault import fault
from npuscope.tile.record.recorder import Recorder, TaskDraft
from npuscope.tile.values.tensors import Tensor

_MOST_TASKS = 1024  # that a recorded graph holds
_View = tuple[int, int, tuple[int, ...]]  # line of a task, its argument, turns of unrolled loops


@dataclass
class _Call:
    """What a call of a graph did: `views` of its tensors by task and argument, as places in them."""

    loops: list[range] = field(default_factory=list)
    tasks: list[tuple[str, int]] = field(default_factory=list)  # kernel, blocks
    made: list[tuple[int, ...]] = field(default_factory=list)
    views: list[tuple[_View, int]] = field(default_factory=list)


class RecordedGraphs:
    """Those of one run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._first: dict[str, _Call] = {}
        self._calls: dict[str, int] = {}
        self._open: _Call | None = None

    @contextmanager
    def call(self, key: str, given: Sequence[Tensor]) -> Iterator[None]:
        """A call of a graph with these tensors."""
        recorder = self._recorder
        if recorder.graph:
            raise fault(f"the graph {key} inside the graph {recorder.graph.rpartition('#')[0]}", "Graphs do not nest.")
        self._calls[key] = self._calls.get(key, 0) + 1
        recorder.graph, self._open = f"{key}#{self._calls[key]}", _Call()
        tasks, reads, buffers = len(recorder.tasks), len(recorder.host_reads), len(recorder.buffers)
        call = self._open
        try:
            yield
        finally:
            recorder.graph, self._open = "", None
        if len(recorder.host_reads) > reads:
            about = f"the graph {key} reads an element between its tasks: a replay would keep what the first call read"
            raise fault(about, "Read it before the call and give the graph the number, or use pl.spmd(predicate=…).")
        call.tasks = [(task.kernel, task.blocks) for task in recorder.tasks[tasks:]]
        call.made = [buffer.shape for buffer in recorder.buffers[buffers:] if buffer.origin == "created"]
        call.views = list(_views(recorder.tasks[tasks:], given))
        if not 0 < len(call.tasks) <= _MOST_TASKS:
            raise fault(f"the graph {key} launches {len(call.tasks)} tasks", f"It holds 1 to {_MOST_TASKS}.")
        _check(key, self._first.setdefault(key, call), call)

    @contextmanager
    def loop(self, values: object) -> Iterator[None]:
        """A loop of the orchestration, which is the graph's where it launches tasks in one."""
        tasks, call = len(self._recorder.tasks), self._open
        yield
        if call is not None and isinstance(values, range) and len(self._recorder.tasks) > tasks:
            call.loops.append(values)


def _views(tasks: Sequence[TaskDraft], given: Sequence[Tensor]) -> Iterator[tuple[_View, int]]:
    """Where in the tensors of the call the arguments of its tasks begin."""
    places: dict[int, set[int]] = defaultdict(set)
    for tensor in given:
        places[tensor.buffer.id].add(int(tensor.offset))
    for task in tasks:
        unrolled = tuple([turn.turn for turn in task.launch.turns if turn.kind == "unroll"])
        for number, argument in enumerate(task.arguments):
            buffer, offset = argument.key[:2]
            if len(places.get(buffer, ())) == 1:
                yield (task.site, number, unrolled), int(offset) - next(iter(places[buffer]))


def _check(key: str, first: _Call, call: _Call) -> None:
    """Refuses what no replay of the first call is."""
    if call.tasks != first.tasks:
        what = f"the graph {key} launches {len(call.tasks)} tasks here and {len(first.tasks)} at its first call"
        if len(call.tasks) == len(first.tasks):
            (old, n), (new, m) = next(pair for pair in zip(first.tasks, call.tasks, strict=True) if pair[0] != pair[1])
            what = f"the graph {key} launches {new} with {m} blocks where its first call launched {old} with {n}"
        raise fault(f"{what}: a replay repeats the first", "Branch inside with pl.spmd(predicate=…).")
    others = [(str(old), str(new)) for old, new in zip(first.loops, call.loops, strict=False) if old != new]
    others += [(f"tensor {[*a]}", f"tensor {[*b]}") for a, b in zip(first.made, call.made, strict=False) if a != b]
    for old, new in others:
        about = f"the graph {key} has a {new} where its first call had a {old}: a replay repeats the first"
        raise fault(about.replace("a range", "a loop over pl.range"), "Give its loops and tensors constant sizes.")
    places: dict[_View, set[int]] = defaultdict(set)
    moved = set()
    for (view, now), (_, before) in zip(call.views, first.views, strict=False):
        places[view].add(now)
        if now != before:
            moved.add(view)
    if any(len(places[view]) > 1 for view in moved):
        about = f"the graph {key} takes a view that is another in each turn of its loop and in each call"
        raise fault(f"{about}: a replay keeps the first", "Give the kernel the whole tensor, or use pl.unroll.")
