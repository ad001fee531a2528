"""Running an entry function: arguments into GM, the program, results back; with or without keeping the record."""

from __future__ import annotations

import importlib
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import combinations
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from threadpoolctl import ThreadpoolController

from npuscope.base import progress
from npuscope.base.process_memory import collected_rarely, keep_freed_memory, on_one_stack
from npuscope.ops.dtypes import Array
from npuscope.tile.enums import FunctionType
from npuscope.tile.fault import NeedsValues, TileError, fault
from npuscope.tile.record import sites
from npuscope.tile.record.model import Mode, Recording, unique_names
from npuscope.tile.record.recorder import recording_of
from npuscope.tile.record.walk import Write, last_writer
from npuscope.tile.run import state
from npuscope.tile.run.arguments import Extents, Parameter, bind, is_torch_tensor, to_torch, with_outputs
from npuscope.tile.run.callbacks import Callback, binding, check
from npuscope.tile.run.memory import Contents, OrderPhase, Slice
from npuscope.tile.run.orchestration import OneRank
from npuscope.tile.run.state import TileRun
from npuscope.tile.run.value_watch import ValueEvent, ValueWatch
from npuscope.tile.shapes.mode import RestartWithoutLanes
from npuscope.tile.values.tensors import LiveBuffer, Tensor, Tile


@dataclass(frozen=True)
class Rerun:
    """How to run the same once more in other orders: `run(phase)` gives the order's memory after the phase, and how
    many tasks were submitted. `initial` and `final`: parameters with a direction, before the run and after it.
    """

    initial: Contents
    final: Contents
    run: Callable[[OrderPhase], tuple[Contents, int]]


@dataclass(frozen=True)
class Finished:
    """One run: its record, what it returned, its named tensors as they were at the end, how long it took."""

    recording: Recording
    result: Any  # whatever the program returns
    seconds: float
    buffers: tuple[LiveBuffer, ...] = field(default=(), repr=False)
    rerun: Rerun | None = field(default=None, repr=False)  # inside `repeatable`
    events: tuple[ValueEvent, ...] = field(default=(), repr=False)  # inside `watched`

    @property
    def named(self) -> dict[str, Array]:
        """Every GM tensor by name in the order they came to be; a name used again gets #2, #3, …"""
        data = {name: self.buffers[id] for name, id in unique_names(self.recording.buffers).items()}
        return {name: b.data.reshape(b.shape) for name, b in data.items() if b.data is not None}

    def last_writer(self, name: str, flat_index: int) -> Write | None:
        """The op that last wrote an element of a named tensor."""
        number = unique_names(self.recording.buffers).get(name)
        return None if number is None else last_writer(self.recording, number, flat_index)


# --- how runs to come are made


@dataclass(frozen=True)
class _Settings:
    mode: Mode = "values"
    listeners: tuple[Callable[[Finished], None], ...] = ()
    repeatable: bool = False
    watched: bool = False
    lanes: bool = True
    stepwise: frozenset[int] = frozenset()  # lines that launch tasks which are run without lanes
    reuses: bool = True
    slice: Slice = field(default=Slice())


class _Runs:
    settings = _Settings()


@contextmanager
def _runs_with(**more: Any) -> Iterator[None]:
    before, _Runs.settings = _Runs.settings, replace(_Runs.settings, **more)
    try:
        yield
    finally:
        _Runs.settings = before


@contextmanager
def collecting() -> Iterator[list[Finished]]:
    """Gathers every run of an entry function that happens inside."""
    runs: list[Finished] = []
    with _runs_with(listeners=(*_Runs.settings.listeners, runs.append)):
        yield runs


def mode_of_runs(mode: Mode) -> AbstractContextManager[None]:
    """Entry functions called inside run in this mode."""
    return _runs_with(mode=mode)


def watched() -> AbstractContextManager[None]:
    """Runs inside look at every value that ops make (run/watch.py): `Finished.events`."""
    return _runs_with(watched=True)


def repeatable() -> AbstractContextManager[None]:
    """Runs that happen inside can be run again: `Finished.rerun`. Keeps a copy of every parameter they may write."""
    return _runs_with(repeatable=True)


def every_task_in_its_turn() -> AbstractContextManager[None]:
    """Inside, `shapes` mode runs also tasks that could take the record of one like them. What is recorded is equal."""
    return _runs_with(reuses=False)


def every_loop_turn_by_turn() -> AbstractContextManager[None]:
    """Inside, `shapes` mode runs also turns and blocks that count as one with others. What is recorded is equal."""
    return _runs_with(lanes=False)


# --- runs


def record(function: object, /, *args: object, mode: Mode = "values", **options: object) -> Finished:
    """Runs an entry function and returns its record.

    `shapes` computes no values except whole numbers that steer loops; arguments may then be Placeholder(shape, dtype).
    """
    if mode not in ("values", "shapes"):
        raise fault(f"no mode {mode!r}", "Use values or shapes.")
    if not callable(function):
        raise fault(f"{function!r} is no function", "Give an entry: a function under @pl.jit.")
    with mode_of_runs(mode), collecting() as runs:
        function(*args, **options)
    if not runs:
        raise fault(f"{getattr(function, '__name__', function)} ran no tile program", "Is @pl.jit missing?")
    return runs[-1]


@dataclass(frozen=True)
class EntryCall:
    """One call of an entry function from outside every run; `rank` where a host function called it."""

    name: str
    body: Callable[..., object]
    parameters: tuple[Parameter, ...]
    args: tuple[object, ...]
    kwargs: dict[str, object]
    rank: OneRank | None = None
    auto_scope: bool = True
    specialises: bool = False  # a @pl.jit function is compiled for the shapes of its arguments, whatever it declares
    # as they are when it is called: ranks take turns in threads of their own, so that they end in any order
    settings: _Settings = field(default_factory=lambda: _Runs.settings)


def run_entry(call: EntryCall) -> object:
    """Runs a program; what it returns."""
    started = time.perf_counter()
    with collected_rarely():
        run, result = on_one_stack(lambda: _run_slice(call))
        run.recorder.auto_scope = call.auto_scope
        run.recorder.place = None if call.rank is None else call.rank.place
        recording = recording_of(run.recorder)
    seconds = time.perf_counter() - started
    seen = () if run.watch is None else tuple(run.watch.events)
    finished = Finished(recording, result, seconds, tuple(run.gm.buffers), _rerun(call, run), seen)
    _tell(finished, call.settings)
    return result


def _run_slice(call: EntryCall) -> tuple[TileRun, object]:
    """Runs a program; in `shapes` mode again where a value steers it, with what leads to that value computed."""
    if call.rank is not None:  # what it misses, and that lanes cannot say it, is its host's to know
        return _run(call, call.settings)
    settings, line = call.settings, ""
    while True:
        inner: list[Finished] = []  # runs of ranks, which count once all of them came to their end
        try:
            with _runs_with(slice=settings.slice, stepwise=settings.stepwise, listeners=(inner.append,)):
                run, result = _run(call, settings)
        except RestartWithoutLanes as restart:
            settings = replace(settings, stepwise=settings.stepwise | restart.tasks)
            continue
        except NeedsValues as needs:
            larger = needs.slice
            if not isinstance(larger, Slice) or larger == settings.slice:
                raise
            settings = replace(settings, slice=larger)
            line = f"{Path(needs.path or '').name}, line {needs.line}"
            progress.report(f"{call.name}: the values behind {line}", len(larger.tasks), 0)
            continue
        if settings.slice and line:
            about = f"values decide what runs (last at {line}): those were computed"
            run.recorder.notes.append(f"{about}, and the record is of these values")
        for one in inner:
            _tell(one, settings)
        return run, result


def _tell(finished: Finished, settings: _Settings) -> None:
    for listener in settings.listeners:
        listener(finished)


def _rerun(call: EntryCall, run: TileRun) -> Rerun | None:
    initial = run.gm.initial
    if initial is None or run.orchestration.ranks is not None or call.rank is not None:
        return None

    def once_more(phase: OrderPhase) -> tuple[Contents, int]:
        with state.turn():
            run, _ = _run(call, replace(call.settings, mode="values", lanes=False), phase)
        return run.gm.order_contents(), len(run.recorder.tasks)

    return Rerun(initial, {id: np.array(run.gm.buffers[id].data) for id in initial}, once_more)


def _run(call: EntryCall, settings: _Settings, phase: OrderPhase | None = None) -> tuple[TileRun, object]:
    where = f"{call.name}()"
    run = TileRun(
        call.name,
        settings.mode,
        lanes=settings.lanes,
        stepwise=settings.stepwise,
        reuses=settings.reuses,
        keeps=settings.repeatable,
        rank=call.rank,
        phase=phase,
        slice=settings.slice,
    )
    run.specialises = call.specialises
    run.watch = ValueWatch() if settings.watched and settings.mode == "values" and phase is None else None
    given = with_outputs(call.name, call.parameters, call.args, call.kwargs)
    dynamic: Extents = run.extents
    keep_freed_memory()
    with state.running(run):
        bound = {p.name: bind(run, p, given[p.name], dynamic, where) for p in call.parameters}
        values = {name: value for name, (value, _) in bound.items()}
        _note_shared(run, where, values)
        with (
            _threads().limit(limits=1, user_api="blas"),
            np.errstate(all="ignore"),
            explained(),
            run.shapes.computing_what_is_needed(),
            _slicing(run),
        ):
            result = _out(run, call.body(**values), {id(value): given[name] for name, value in values.items()})
            if run.watch is not None:
                run.watch.settle()
        if phase is None and run.orchestration.ranks is None:  # a host function writes nothing itself
            _note_unwritten(run, where, call.parameters, values)
        for _, give_back in bound.values():
            if phase is None and give_back is not None:
                give_back()
    if any(is_torch_tensor(value) for value in given.values()):
        result = _as_torch(result)
    return run, result


@contextmanager
def _slicing(run: TileRun) -> Iterator[None]:
    """Where a value is missing: what would have to be computed, said by the run that misses it."""
    try:
        yield
    except NeedsValues as needs:
        if needs.slice is None and needs.origins:
            needs.slice = run.gm.slice.with_all_behind(needs.origins, run.recorder)
        raise


@cache
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def _note_shared(run: TileRun, where: str, values: Mapping[str, object]) -> None:
    """One memory under two names: the graph knows tensors by buffer and would miss what one does to the other."""
    arrays = [(key, np.asarray(value.buffer.data)) for key, value in values.items() if _has_array(value)]
    for (other, before), (key, data) in combinations(arrays, 2):
        if np.may_share_memory(data, before):
            about = f"{where}: {other} and {key} share memory"
            run.recorder.notice("shared", f"{about}: what one writes is no dependency of the other here")


def _has_array(value: object) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.buffer.keeps_values and value.buffer.is_made


def _note_unwritten(run: TileRun, where: str, parameters: tuple[Parameter, ...], values: Mapping[str, object]) -> None:
    written = {a.key[0] for task in run.recorder.tasks for a in task.arguments if a.writes}
    written |= {alias.whole for alias in run.recorder.aliases}
    for parameter in parameters:
        value = values[parameter.name]
        if parameter.direction == "Out" and isinstance(value, Tensor) and value.buffer.id not in written:
            about = f"{parameter.name} {list(value.shape)}, which is declared pl.Out"
            run.recorder.notice("direction", f"{where} never writes to {about}")


def _out(run: TileRun, value: object, given: Mapping[int, object]) -> object:
    """What the caller gets: of a tensor that it gave, by its id, that very object."""
    if isinstance(value, tuple | list):
        return tuple(_out(run, entry, given) for entry in value)
    if isinstance(value, Tile):
        value = run.promoted(value)
    if isinstance(value, Tensor):
        return None if value.buffer.data is None else given[id(value)] if id(value) in given else value.view()
    return value


def _as_torch(value: object) -> object:
    if isinstance(value, tuple):
        return tuple(_as_torch(entry) for entry in value)
    return to_torch(value) if isinstance(value, np.ndarray) else value


# --- Python's complaints about a tile program, as mistakes in the user's source

_MISTAKES = (TypeError, NameError, ValueError, ZeroDivisionError, OverflowError)


@contextmanager
def explained() -> Iterator[None]:
    """Turns an error that Python raised in a line of the user into a TileError; npuscope's own faults pass.

    An op called with an argument it has not, a name that this block or branch never bound, two values for three names:
    Python notices these in the user's line, so the line is known and one sentence is enough.
    """
    try:
        yield
    except (MemoryError, *_MISTAKES) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(sites.LIBRARY)]
        what, remedy = str(error), ""
        if isinstance(error, MemoryError):
            frames = [frame for frame in frames if not sites.is_ours(frame.filename)]
            what, remedy = "this machine has not the memory for it", "Record it in shapes mode, or make it smaller."
        elif isinstance(error, NameError):
            named = re.search("'([^']+)'", what)
            what = f"the name {named.group(1) if named else '?'} is not bound here"
            remedy = "A block sees the names bound before its task, not another block's; a branch not taken binds none."
        if not frames or sites.is_ours(frames[-1].filename):
            raise
        raise TileError(what, path=frames[-1].filename, line=frames[-1].lineno, remedy=remedy) from error


# --- what `compile` and `lower` return

_TYPES = {"AIC": FunctionType.AIC, "AIV": FunctionType.AIV, "MIX": FunctionType.Group}


@dataclass(frozen=True)
class KernelFunction:
    """A function of the device program."""

    name: str
    func_type: FunctionType


@dataclass(frozen=True)
class Compiled:
    """A program ready to run. Nothing is compiled: `lower` records it without values, when somebody first asks."""

    name: str
    run: Callable[..., object] = field(repr=False)
    lower: Callable[[], Finished] = field(repr=False)
    sub_workers: Mapping[str, bool] = field(default_factory=dict, repr=False)  # and whether each must be bound

    def __call__(self, *args: object, **kwargs: object) -> object:
        """What it makes; nothing where it was given its outputs, as PyPTO's compiled program gives nothing then."""
        made = self.run(*args, **kwargs)
        given = {id(one) for one in (*args, *kwargs.values())}
        return None if all(id(one) in given for one in (made if isinstance(made, tuple) else (made,))) else made

    def prepare(
        self,
        *_: object,
        extra_compiled: Sequence[Compiled] = (),
        callbacks: Mapping[str, Callback] | None = None,
        sub_worker_overrides: Mapping[str, Callback] | None = None,  # the older name of callbacks
        **__: object,
    ) -> Worker:
        """A worker that is ready to be called again and again; here every call is alike."""
        return Worker([self, *extra_compiled], callbacks={**(sub_worker_overrides or {}), **(callbacks or {})})

    @cached_property
    def recording(self) -> Recording:
        try:
            return self.lower().recording
        except TileError as error:
            note = "The program was only lowered here: numbers that it reads are those of the arguments as they are now"
            error.remedy = f"{error.remedy} {note}, be they torch.empty's.".lstrip()
            raise

    @property
    def functions(self) -> dict[str, KernelFunction]:
        """The orchestration and every kernel."""
        types = {self.name: FunctionType.Orchestration}
        for task in self.recording.tasks:
            if task.form != "dummy":
                types.setdefault(task.kernel, _TYPES.get(task.core, FunctionType.InCore))
        return {name: KernelFunction(name, kind) for name, kind in types.items()}

    @property
    def program(self) -> Compiled:
        return self

    @property
    def output_dir(self) -> Path:
        """Where a compiler would leave its files; there are none."""
        return Path("build_output", self.name)


# --- `pypto.runtime.Worker` and its kinds: programs prepared once, then called again and again with tensors that stay


class Registered:
    """A program at a worker: calling it runs it there."""

    def __init__(self, compiled: Any, worker: Worker) -> None:
        self.compiled, self.worker = compiled, worker

    @property
    def closed(self) -> bool:
        return self.worker.closed

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.worker.run(self.compiled, *args, **kwargs)


class Submitted:
    """A call that was submitted: it ran at once, so its result is there."""

    def __init__(self, value: object) -> None:
        self._value = value

    def result(self, *_: object, **__: object) -> object:
        return self._value


@dataclass(frozen=True)
class StackedDeviceTensor:
    """A tensor whose parts along the first axis stay on cards, each on its own."""

    whole: Any
    worker_ids: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.whole.shape)

    full_shape = shape

    def __getitem__(self, at: Any) -> Any:
        return self.whole[at]


class Worker:
    """Runs programs one after the other; a device's memory is this process's, so its tensors are plain ones."""

    def __init__(
        self, programs: Any = (), *_: object, callbacks: Mapping[str, Callback] | None = None, **__: object
    ) -> None:
        self._programs = list(programs if isinstance(programs, Sequence) else [programs])
        self._callbacks = dict(callbacks or {})
        known = [getattr(one, "sub_workers", {}) for one in self._programs]
        check(self._callbacks, {name: needed for one in known for name, needed in one.items()})
        self._loaded: list[object] = []
        self._owned_tensors: list[object] = []
        self.closed = False

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Runs the program that it was prepared for."""
        if len(self._programs) != 1:
            raise TypeError(f"a call is ambiguous with {len(self._programs)} programs: use run(compiled, ...)")
        return self.run(self._programs[0], *args, **kwargs)

    @property
    def aicpu_dlopen_count(self) -> int:
        """How many programs a device would have loaded: each once."""
        return len(self._loaded)

    def register(self, compiled: Any) -> Registered:
        self._load(compiled, "register")
        return Registered(compiled, self)

    def run(self, compiled: Callable[..., object], *args: object, **kwargs: object) -> object:
        self._load(compiled, "run")
        plain = [one.whole if isinstance(one, StackedDeviceTensor) else one for one in args]
        with binding(self._callbacks):
            return compiled(*plain, **kwargs)

    def submit(self, compiled: Callable[..., object], *args: object, **kwargs: object) -> Submitted:
        return Submitted(self.run(compiled, *args, **kwargs))

    def alloc_tensor(self, shape: Sequence[int], dtype: Any, *, init: Any = None, **_: object) -> Any:
        """A tensor that stays until it is freed: a copy of `init`, else zeros."""
        self._open("alloc_tensor")
        if init is not None and tuple(init.shape) != tuple(shape):
            raise ValueError(f"alloc_tensor: init has the shape {list(init.shape)}, not {list(shape)}")
        tensor: Any
        if type(dtype).__module__ == "torch":
            tensor = importlib.import_module("torch").zeros(tuple(shape), dtype=dtype)
        else:
            tensor = np.zeros(tuple(shape), dtype)
        if init is not None:
            tensor[...] = init
        self._owned_tensors.append(tensor)
        return tensor

    def free_tensor(self, tensor: object) -> None:
        if not any(one is tensor for one in self._owned_tensors):
            raise ValueError("free_tensor: the tensor is not this worker's, or was freed before")
        self._owned_tensors = [one for one in self._owned_tensors if one is not tensor]

    def alloc_stacked_tensor(self, init: Any, *, worker_ids: Sequence[int] | None = None) -> StackedDeviceTensor:
        """A copy of `init` that stays, part by part on the cards `worker_ids`: 0, 1, … where none are named."""
        cards = tuple(range(len(init)) if worker_ids is None else worker_ids)
        if len(cards) != len(init) or len(set(cards)) != len(cards):
            raise ValueError(f"alloc_stacked_tensor: {len(init)} parts on the cards {list(cards)}: one card each")
        return StackedDeviceTensor(self.alloc_tensor(init.shape, init.dtype, init=init), cards)

    def free_stacked_tensor(self, tensor: StackedDeviceTensor) -> None:
        self.free_tensor(tensor.whole)

    def copy_stacked_from(self, tensor: StackedDeviceTensor, host: Any) -> None:
        host[...] = tensor.whole

    def release_inherited_host_tensor_refs(self) -> None:
        """Nothing is held: what stays was copied."""

    def close(self) -> None:
        self.closed = True
        self._owned_tensors.clear()

    def _open(self, what: str) -> None:
        if self.closed:
            raise RuntimeError(f"{what} called after close")

    def _load(self, compiled: object, what: str) -> None:
        self._open(what)
        if not any(one is compiled for one in self._loaded):
            self._loaded.append(compiled)
