"""Several ranks at once: a host function calls entries with `device=`, and they run side by side.

Every such call is a stepped thread with a record of its own. It runs until it waits for a signal that is not there yet;
then another goes on. When all of them wait, those in a deferred wait go on without what they wait for, up to a task
that depends on it; where there is none nobody will ever signal: that is an error, not a hang. Calls on one device
run in order, and so do calls that share memory of the host where one of them writes it. `ranks_by_chance` takes turns
in another order, and also where nobody waits: what a program computes must not depend on it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import count
from math import prod
from random import Random

from npuscope.ops.dtypes import Array
from npuscope.tile.distributed.windows import Window
from npuscope.tile.fault import TileError, fault
from npuscope.tile.graph.boxes import Box, overlaps, row_major
from npuscope.tile.language.functions import EntryFunction, TileFunction, decorator
from npuscope.tile.record import sites
from npuscope.tile.record.model import RankPlace, Site
from npuscope.tile.record.recorder import asked_for
from npuscope.tile.run import state
from npuscope.tile.run.arguments import Parameter, Placeholder, parameters, to_torch, torch_module
from npuscope.tile.run.block import SteppedThread
from npuscope.tile.run.callbacks import callback
from npuscope.tile.run.execute import Compiled, EntryCall, record, run_entry
from npuscope.tile.run.state import TileRun
from npuscope.tile.values import lanes
from npuscope.tile.values.tensors import Tensor

FALLS_BEHIND = 0.1  # of its turns after which a rank is overtaken by all others


@dataclass(frozen=True)
class WindowRead:
    """What a rank read of a window, its own or a peer's."""

    device: int
    window: str
    site: Site
    values: bytes


class ByChance:
    """Ranks as fast as each other's order here says: the fastest that can go on does, until it falls behind.

    So one is far ahead of another now and then, which it hardly ever is where each turn is drawn."""

    def __init__(self, seed: int) -> None:
        self.draw, self.forwards = Random(seed), seed % 2 == 0
        self.order: list[Rank] = []

    def next(self, ready: Sequence[Rank]) -> Rank:
        new = [rank for rank in ready if rank not in self.order]
        self.order += new if self.forwards else new[::-1]
        chosen = next(rank for rank in self.order if rank in ready)
        if self.draw.random() < FALLS_BEHIND:
            self.order.remove(chosen)
            self.order.append(chosen)
        return chosen


class _Turns:
    """How ranks take turns: by chance, or in their order; and what they read meanwhile, where somebody asks."""

    chance: ByChance | None = None
    reads: list[WindowRead] | None = None


@contextmanager
def reads_of_windows() -> Iterator[list[WindowRead]]:
    """Inside, what ranks read of windows, in the order of each."""
    before, _Turns.reads = _Turns.reads, []
    try:
        yield _Turns.reads
    finally:
        _Turns.reads = before


@contextmanager
def ranks_by_chance(seed: int) -> Iterator[None]:
    """Inside, ranks take turns in an order drawn by the seed, before and after everything that others can see."""
    before, _Turns.chance = _Turns.chance, ByChance(seed)
    try:
        yield
    finally:
        _Turns.chance = before


@dataclass(frozen=True)
class Waiting:
    """What a thread stopped for; `task`: the one that is done then, while its rank may go on."""

    holds: Callable[[], bool]
    says: Callable[[], str]
    site: Site
    task: int | None = None


def _depended(one: Waiting) -> str:
    return f"{one.says()}, deferred, and this task depends on it: npuscope keeps to their order, notify before"


class Rank:
    """One call on one device."""

    def __init__(
        self, place: RankPlace, entry: EntryFunction, args: tuple[object, ...], kwargs: dict[str, object]
    ) -> None:
        self.device, self.place, self.name = place.rank, place, entry.name
        self.windows: dict[int, Window] = {}  # by the buffer of the run that stands for it
        self.after: list[Rank] = []
        self.touches = _touched(entry.arguments(args, kwargs))
        self.waiting: Waiting | None = None
        self.postponed: list[Waiting] = []  # that the rank went on without
        given = [_outside(value) for value in args]
        named = {key: _outside(value) for key, value in kwargs.items()}
        name = f"{entry.name}@{place.rank}"
        call = EntryCall(name, entry.body, entry.parameters, tuple(given), named, rank=self)
        self.thread = SteppedThread(lambda: run_entry(call))

    def hold(self, buffer: int, window: object) -> None:
        """A buffer of its run stands for a window."""
        assert isinstance(window, Window)
        self.windows[buffer] = window

    def signal(self, buffer: int) -> int | None:
        window = self.windows.get(buffer)
        return window.buffer.number if window is not None and window.buffer.signals else None

    def clashes(self, other: Rank) -> bool:
        pairs = [(a, b) for a, one in self.touches for b, two in other.touches if one or two]
        return any(overlaps(a, b) for a, b in pairs)

    @property
    def can_go_on(self) -> bool:
        if self.waiting is not None:
            return self.waiting in self.postponed or self.waiting.holds()
        return all(other.thread.ended for other in self.after)

    def may_change(self) -> None:
        """Called in the thread where another rank may have its turn first."""
        if _Turns.chance is not None:
            self._pause(lambda: True, lambda: "")

    def read(self, window: str, values: Array) -> None:
        """Called in the thread with what it has read of a window."""
        if _Turns.reads is not None:
            _Turns.reads.append(WindowRead(self.device, window, sites.site(sites.here()), values.tobytes()))

    def wait(self, holds: Callable[[], bool], says: Callable[[], str], task: int | None = None) -> None:
        """Called in the thread: comes back when the condition holds; where a `task` waits and all ranks do, before."""
        self.may_change()
        if not holds():
            self._pause(holds, says, task)

    def before_task(self, deps: Sequence[int]) -> None:
        """Called in the thread that submits a task: what the rank went on without must hold for the tasks it names."""
        for one in [one for one in self.postponed if one.task in deps]:
            if not one.holds():
                self._pause(one.holds, partial(_depended, one))

    def settle(self) -> None:
        """Forgets what it went on without and what holds by now."""
        self.postponed = [one for one in self.postponed if one is self.waiting or not one.holds()]

    def _pause(self, holds: Callable[[], bool], says: Callable[[], str], task: int | None = None) -> None:
        run = state.current()
        self.waiting = Waiting(holds, says, sites.site(sites.here()), task)
        self.thread.pause()
        self.waiting = None
        state.switch(run)


class SubWorkerCall(Rank):
    """A call of the host's own Python, after what it reads is written and before others write it."""

    def __init__(self, function: SubWorker, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        given = function.arguments(args, kwargs)
        self.device, self.name = -1, function.name
        self.after, self.waiting, self.touches, self.postponed = [], None, _touched(given), []
        self.thread = SteppedThread(lambda: function.run(given))


def _touched(given: list[tuple[Parameter, object]]) -> list[tuple[Box, bool]]:
    """Memory of the host, and whether it is written."""
    return [
        (Box(v.buffer.id, v.offset, v.shape, v.strides), p.direction is not None)
        for p, v in given
        if isinstance(v, Tensor)
    ]


@dataclass
class HostRun:
    """The ranks of one call of a host function."""

    world_size: int
    ranks: list[Rank] = field(default_factory=list)
    number: int = field(default_factory=count().__next__)  # of this call
    _windows: Iterator[int] = field(default_factory=count)

    def dispatch(self, entry: object, args: tuple[object, ...], kwargs: dict[str, object], device: object) -> object:
        """Notes a call; it runs when the host function ends. What it returns: the tensors it writes."""
        assert isinstance(entry, EntryFunction | SubWorker)
        rank = (
            SubWorkerCall(entry, args, kwargs)
            if isinstance(entry, SubWorker)
            else self._rank(entry, args, kwargs, device)
        )
        rank.after = [other for other in self.ranks if other.device == rank.device or rank.clashes(other)]
        self.ranks.append(rank)
        written = [v for p, v in entry.arguments(args, kwargs) if p.direction is not None]
        return written[0] if len(written) == 1 else tuple(written)

    def _rank(self, entry: EntryFunction, args: tuple[object, ...], kwargs: dict[str, object], device: object) -> Rank:
        number = 0 if device is None else lanes.whole(device)
        if not 0 <= number < self.world_size:
            raise fault(f"device={number} of {self.world_size} ranks")
        for value in (*args, *kwargs.values()):
            if isinstance(value, Window):
                value.buffer.devices.add(number)
                if value.buffer.number < 0:
                    value.buffer.number = next(self._windows)
        return Rank(RankPlace(self.number, number, self.world_size), entry, args, kwargs)

    def finish(self) -> None:
        """All ranks to their end."""
        live = list(self.ranks)
        while live:
            ready = [rank for rank in live if rank.can_go_on]
            if not ready:
                ready = [rank for rank in live if rank.waiting is not None and rank.waiting.task is not None]
                for rank in ready:
                    rank.postponed += [rank.waiting] if rank.waiting else []
            if not ready:
                raise _deadlock(live)
            for rank in ready if _Turns.chance is None else [_Turns.chance.next(ready)]:
                if rank.can_go_on:
                    state.switch(None)
                    rank.thread.advance()
            for rank in self.ranks:
                rank.settle()
            live = [rank for rank in live if not rank.thread.ended]
        if any(rank.postponed for rank in self.ranks):
            raise _deadlock(self.ranks)

    def abandon(self) -> None:
        """Ends ranks that nobody will run on, where an error has ended one of them or the host."""
        for rank in self.ranks:
            if not rank.thread.ended:
                rank.thread.abandon()


def _deadlock(live: list[Rank]) -> TileError:
    stuck = [(rank, one) for rank in live for one in (*([rank.waiting] if rank.waiting else rank.postponed),)]
    says = "; ".join(
        f"rank {rank.device} waits for {w.says()} ({w.site.function}, line {w.site.line})" for rank, w in stuck
    )
    first = stuck[0][1].site
    return TileError(
        f"deadlock: no rank can go on: {says}",
        path=first.file,
        line=first.line,
        remedy="Somebody must notify what these ranks wait for.",
    )


def _outside(value: object) -> object:
    """A tensor of the host as an argument from outside."""
    if not isinstance(value, Tensor):
        return value
    buffer = value.buffer
    if buffer.keeps_values and buffer.is_made:
        return value.view()
    if not buffer.keeps_values and buffer.promise is None:
        return Placeholder(value.shape, value.dtype)

    if (row := _row_of(value)) is not None and (make_row := buffer.promised_row) is not None:
        return Placeholder(value.shape, value.dtype, lambda: make_row(row))  # those of other ranks nobody asks for

    def make() -> Array:
        buffer.source = buffer.source if buffer.keeps_values else buffer.promise
        return value.view()

    return Placeholder(value.shape, value.dtype, make)


def _row_of(value: Tensor) -> int | None:
    """Which row of its buffer's outermost axis a tensor is."""
    shape = value.buffer.shape[1:]
    if value.shape != shape or value.strides != row_major(shape) or not isinstance(value.offset, int):
        return None
    return value.offset // prod(shape)


class Host(TileFunction):
    """A host function: hands out windows and calls entries, one for each rank."""

    kind = "host"

    def __call__(self, *args: object, config: object = None, **kwargs: object) -> object:
        if state.under_way() is not None:
            raise fault(f"the host function {self.name} inside a program", "Call it from outside.")
        size = _world_size(self.name, config)

        def body(**given: object) -> object:
            run = state.current()
            host = HostRun(size)
            run.orchestration.ranks = host
            try:
                result = self.body(**given)
                host.finish()
            finally:
                host.abandon()
                state.switch(run)
            return result

        with asked_for(getattr(config, "__dict__", {})):
            return run_entry(EntryCall(self.name, body, self.parameters, args, kwargs))

    def compile(self, *args: object, config: object = None, **kwargs: object) -> Compiled:
        """Ready to be called with the arguments."""

        def run(*given: object, **named: object) -> object:
            named["config"] = named["config"] if _devices(named.get("config")) else config
            return self(*given, **named)

        return Compiled(self.name, run, lambda: record(self, *args, config=config, mode="shapes", **kwargs))

    lower = compile


def _world_size(name: str, config: object) -> int:
    devices = _devices(config)
    if not devices:
        raise fault(
            f"{name}() runs on several ranks and nobody says how many",
            "Call it with config=DistributedConfig(device_ids=[0, 1]), or compile_cfg of golden.run_jit.",
        )
    return len(devices)


def _devices(config: object) -> Sequence[int]:
    """Of a DistributedConfig, or of a RunConfig that holds one."""
    return getattr(getattr(config, "distributed_config", None) or config, "device_ids", None) or ()


class SubWorker(TileFunction):
    """Plain Python of the host between the calls of devices: it has no `self`, and tensors are those of torch.

    Without a body (`...`) it is what a worker's `callbacks=` binds to its name. Nothing of it is recorded.
    """

    kind = "sub worker"

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        return tuple(one for one in parameters(self.function, self.around) if one.name != "self")

    @property
    def requires_runtime_binding(self) -> bool:
        """Whether its body is `...`."""
        try:
            made = ast.parse(textwrap.dedent(inspect.getsource(self.function))).body[0]
        except OSError:  # a function of no file
            return False
        body = [one.value if isinstance(one, ast.Expr) else one for one in getattr(made, "body", [])]
        constants = [one.value for one in body if isinstance(one, ast.Constant)]
        return len(constants) == len(body) and Ellipsis in constants

    def inside(self, run: TileRun, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        if run.orchestration.ranks is None:
            raise fault(f"{self.name} is a sub worker of the host", "Call it from the host's orchestrator.")
        if callback(self.name) is None and self.requires_runtime_binding:
            raise fault(
                f"the sub worker {self.name} has no body", f'Use prepare(callbacks={{"{self.name}": function}}).'
            )
        return run.orchestration.ranks.dispatch(self, args, kwargs, None)

    def run(self, given: list[tuple[Parameter, object]]) -> None:
        """Does it, where there are values."""
        tensors = [value for _, value in given if isinstance(value, Tensor)]
        if not all(one.buffer.keeps_values for one in tensors):
            return
        values = {p.name: _plain(value) for p, value in given}
        bound = callback(self.name)
        if bound is not None:
            bound(list(values.values()))
        else:
            self.function(**values)
        for parameter, value in given:
            if parameter.direction is not None and isinstance(value, Tensor):
                value.buffer.written = None
                value.buffer.changed()


def _plain(value: object) -> object:
    if not isinstance(value, Tensor):
        return value
    return to_torch(value.view()) if torch_module() is not None else value.view()


host = decorator(Host)  # `@pl.jit.host`
sub_worker = decorator(SubWorker)  # `@pl.function(level=pl.Level.HOST, role=pl.Role.SubWorker)`
