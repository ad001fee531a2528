"""Running an entry function: arguments into GM, the program, results back; with or without keeping the record."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import ThreadpoolController

from npuscope.garbage import collected_rarely
from npuscope.ops.numeric.allocation import keep_freed_memory
from npuscope.tile.fault import fault
from npuscope.tile.record.model import Mode, Recording
from npuscope.tile.record.names import unique_names
from npuscope.tile.record.writers import Write, last_writer
from npuscope.tile.run import arguments as door
from npuscope.tile.run import state
from npuscope.tile.run.mistakes import explained
from npuscope.tile.run.phase import Contents, Phase, left
from npuscope.tile.run.state import Run
from npuscope.tile.shapes.replay import Replay
from npuscope.tile.shapes.steering import Again
from npuscope.tile.values.axes import AXES
from npuscope.tile.values.buffers import Buffer
from npuscope.tile.values.tensors import Tensor, Tile


@dataclass(frozen=True)
class Repeat:
    """How to run the same once more in other orders: `run(phase)` gives the order's memory after the phase, and how
    many tasks were submitted. `initial` and `final`: parameters with a direction, before the run and after it.
    """

    initial: Contents
    final: Contents
    run: Callable[[Phase], tuple[Contents, int]]


@dataclass(frozen=True)
class Finished:
    """One run: its record, what it returned, its named tensors as they were at the end, how long it took."""

    recording: Recording
    result: Any
    seconds: float
    buffers: tuple[Buffer, ...] = field(default=(), repr=False)
    again: Repeat | None = field(default=None, repr=False)  # inside `repeatable`

    @property
    def named(self) -> dict[str, npt.NDArray[Any]]:
        """Every GM tensor by name in the order they came to be; a name used again gets #2, #3, …"""
        data = {name: self.buffers[id] for name, id in unique_names(self.recording.buffers).items()}
        return {name: b.data.reshape(b.shape) for name, b in data.items() if b.data is not None}

    def last_writer(self, name: str, flat_index: int) -> Write | None:
        """The op that last wrote an element of a named tensor."""
        number = unique_names(self.recording.buffers).get(name)
        return None if number is None else last_writer(self.recording, number, flat_index)


_listeners: list[Callable[[Finished], None]] = []
_modes: list[Mode] = ["values"]
REPLAYS = True  # whether a task may take the record of one like it; it is the same either way


@contextmanager
def collecting() -> Iterator[list[Finished]]:
    """Gathers every run of an entry function that happens inside."""
    found: list[Finished] = []
    _listeners.append(found.append)
    try:
        yield found
    finally:
        _listeners.pop()


@contextmanager
def mode_of_runs(mode: Mode) -> Iterator[None]:
    """Entry functions called inside run in this mode."""
    _modes.append(mode)
    try:
        yield
    finally:
        _modes.pop()


@contextmanager
def repeatable() -> Iterator[None]:
    """Runs that happen inside can be run again: `Finished.again`. Keeps a copy of every parameter they may write."""
    global _repeatable
    before, _repeatable = _repeatable, True
    try:
        yield
    finally:
        _repeatable = before


_repeatable = False


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def record(function: Any, /, *args: Any, mode: Mode = "values", **options: Any) -> Finished:
    """Runs an entry function and returns its record.

    `shapes` computes no values except whole numbers that steer loops; arguments may then be Placeholder(shape, dtype).
    """
    if mode not in ("values", "shapes"):
        raise fault(f"no mode {mode!r}", "Use values or shapes.")
    with mode_of_runs(mode), collecting() as found:
        function(*args, **options)
    if not found:
        raise fault(f"{getattr(function, '__name__', function)} ran no tile program", "Is @pl.jit missing?")
    return found[-1]


def run_entry(
    name: str,
    body: Callable[..., Any],
    parameters: tuple[door.Parameter, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rank: Any = None,
    auto_scope: bool = True,
) -> Any:
    """One call of an entry function from outside every run; `rank` where a host function called it."""
    started = time.perf_counter()
    given = (name, body, parameters, args, kwargs, rank)
    with collected_rarely():
        try:
            run, result = _run(*given, lanes=rank is None)
        except Again:
            run, result = _run(*given, lanes=False)
        run.recorder.auto_scope = auto_scope
        recording = run.recorder.recording()
    seconds = time.perf_counter() - started
    again = None
    if run.kept is not None and run.host is None and rank is None:

        def once_more(phase: Phase) -> tuple[Contents, int]:
            with state.turn, mode_of_runs("values"):
                run, _ = _run(*given, lanes=False, phase=phase)
            return left(run.buffers), len(run.recorder.tasks)

        final = {id: np.array(run.buffers[id].data) for id in run.kept}
        again = Repeat(run.kept, final, once_more)
    finished = Finished(recording, result, seconds, tuple(run.buffers), again)
    for listener in _listeners:
        listener(finished)
    return result


def _run(
    name: str,
    body: Callable[..., Any],
    parameters: tuple[door.Parameter, ...],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    rank: Any,
    lanes: bool,
    phase: Phase | None = None,
) -> tuple[Run, Any]:
    run = Run(name, _modes[-1], phase)
    run.kept = {} if _repeatable and phase is None and run.computes else None
    run.rank = rank
    run.lanes = run.lanes and lanes
    if run.lanes and REPLAYS:
        run.replay = Replay(run.recorder, lambda: run.writes)
    where = f"{name}()"
    given = door.with_outputs(name, parameters, args, kwargs)
    dynamic: dict[Any, int] = {}
    before = state.swap(run)
    keep_freed_memory()
    AXES.reset()
    try:
        bound = {p.name: door.bind(run, p, given[p.name], dynamic, where) for p in parameters}
        _note_shared(run, name, bound)
        with _threads().limit(limits=1, user_api="blas"), np.errstate(all="ignore"), explained():
            result = _out(run, body(**{key: entry.value for key, entry in bound.items()}))
        if phase is None and run.host is None:  # a host function writes nothing itself
            _note_forgotten(run, name, parameters, bound)
        for entry in bound.values():
            if phase is None and entry.give_back is not None:
                entry.give_back()
    finally:
        state.swap(before)
    if any(door.is_torch(value) for value in given.values()):
        result = _as_torch(result)
    return run, result


def _note_shared(run: Run, name: str, bound: dict[str, door.Bound]) -> None:
    """One memory under two names: the graph knows tensors by buffer and would miss what one does to the other."""
    tensors = [(key, entry.value) for key, entry in bound.items() if isinstance(entry.value, Tensor)]
    for k, (key, one) in enumerate(tensors):
        for other_key, other in tensors[:k]:
            data, before = one.buffer.data, other.buffer.data
            if data is not None and before is not None and np.may_share_memory(data, before):
                about = f"{name}(): {other_key} and {key} share memory"
                run.recorder.finding("shared", f"{about}: what one writes is no dependency of the other here")


def _note_forgotten(run: Run, name: str, parameters: tuple[door.Parameter, ...], bound: dict[str, door.Bound]) -> None:
    written = {a.key[0] for task in run.recorder.tasks for a in task.arguments if a.writes}
    written |= {alias.whole for alias in run.recorder.aliases}
    for parameter in parameters:
        value = bound[parameter.name].value
        if parameter.direction == "Out" and isinstance(value, Tensor) and value.buffer.id not in written:
            about = f"{parameter.name} {list(value.shape)}, which is declared pl.Out"
            run.recorder.finding("direction", f"{name}() never writes to {about}")


def _out(run: Run, value: Any) -> Any:
    if isinstance(value, tuple | list):
        return tuple(_out(run, entry) for entry in value)
    if isinstance(value, Tile):
        value = run.promoted(value)
    if isinstance(value, Tensor):
        return None if value.buffer.data is None else value.view()
    return value


def _as_torch(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_as_torch(entry) for entry in value)
    return door.to_torch(value) if isinstance(value, np.ndarray) else value
