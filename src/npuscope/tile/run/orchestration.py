"""What the orchestration of a run is in: scopes, loops, calls, a cluster, ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

from npuscope.ops.dtypes import Array
from npuscope.tile.fault import fault
from npuscope.tile.record import model, sites
from npuscope.tile.record.recorder import Recorder, TaskDraft
from npuscope.tile.run.block import Block
from npuscope.tile.run.recorded_graphs import RecordedGraphs
from npuscope.tile.values.lanes import plain


class Carry:
    """What a loop carries from turn to turn; `in_task`: a loop inside a task, not one of the orchestration."""

    __slots__ = ("_in_task", "values")

    def __init__(self, values: tuple[object, ...], in_task: bool) -> None:
        self.values, self._in_task = values, in_task

    def carry_on(self, values: tuple[object, ...]) -> None:
        """A loop of the orchestration knows plain numbers only, not those of a task that is watched."""
        self.values = values if self._in_task else tuple([plain(value) for value in values])


class OpenCluster:
    """An open `pl.cluster`: the regions in it are one task."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.task: TaskDraft | None = None
        self.block: Block | None = None  # stays open until the cluster ends


class DrawsTasks(Protocol):
    """An open scope in which tasks draw themselves (language/runtime.py)."""

    held: bool

    def start(self) -> None: ...

    def pause(self) -> None: ...

    def turns(self, loop: object) -> Iterator[object]: ...


class HostRanks(Protocol):
    """The ranks that a host function calls (distributed/ranks.py)."""

    world_size: int

    def dispatch(
        self, entry: object, args: tuple[object, ...], kwargs: dict[str, object], device: object
    ) -> object: ...


class OneRank(Protocol):
    """The rank that a run is for; `windows`: by the buffer of the run that stands for each."""

    device: int
    place: model.RankPlace

    @property
    def windows(self) -> Mapping[int, object]: ...

    def hold(self, buffer: int, window: object) -> None: ...

    def may_change(self) -> None: ...

    def read(self, window: str, values: Array) -> None: ...

    def signal(self, buffer: int) -> int | None:
        """The number of the window that a buffer of the run stands for, where ranks signal each other with it."""

    def wait(self, holds: Callable[[], bool], says: Callable[[], str], task: int | None = None) -> None: ...

    def before_task(self, deps: Sequence[int]) -> None: ...


class Orchestration:
    """One run's."""

    def __init__(self, recorder: Recorder, rank: OneRank | None) -> None:
        self._recorder = recorder
        self.rank = rank  # of a run that a host function called
        self.ranks: HostRanks | None = None  # of a host function's run: those it calls
        self.cluster: OpenCluster | None = None
        self.draws: DrawsTasks | None = None
        self.in_manual_scope = False
        self.graphs = RecordedGraphs(recorder)
        self.reads_for_runtime = False  # an element is read for a predicate: by the runtime, which makes nobody wait
        self.barriers = 0  # that blocks came to
        self._loops = 0  # entered so far
        self.carries: list[Carry] = []  # open loops with carried values, innermost last
        self._calls: dict[str, int] = {}
        self._unnamed: dict[int, str] = {}  # place of a region without a name -> what it is called
        self._opted_out: list[object] = []  # arguments of the call to come that pl.no_dep named
        self._opt_outs = 0  # times pl.no_dep was said

    # --- scopes

    def open_scope(self, manual: bool) -> None:
        if self.in_manual_scope:
            kind = "a manual scope" if manual else "an automatic scope"
            raise fault(f"{kind} inside a manual scope", "Close the manual scope first.")
        self._recorder.open_scope(manual)
        self.in_manual_scope = manual

    def close_scope(self) -> None:
        self._recorder.scopes.pop()
        self.in_manual_scope = False  # no scope is open around a manual one that is manual, too

    def close_cluster(self) -> Block | None:
        """The block that is still open."""
        cluster, self.cluster = self.cluster, None
        return None if cluster is None else cluster.block

    # --- loops

    def turns(self, kind: model.LoopKind, values: Iterable[int]) -> Iterator[int]:
        """Every turn of a loop, on record while it lasts."""
        self._loops += 1
        number, turns = self._loops, self._recorder.turns
        depth = len(turns)
        try:
            with self.graphs.loop(values):
                for turn, value in enumerate(values):
                    turns.append(model.Turn(number, kind, turn))
                    yield value
                    del turns[depth:]
        finally:
            del turns[depth:]

    @contextmanager
    def carrying(self, carry: Carry) -> Iterator[None]:
        """A loop with carried values."""
        depth = len(self.carries)
        self.carries.append(carry)
        try:
            yield
        finally:
            del self.carries[depth:]

    def carry_on(self, values: tuple[object, ...]) -> None:
        """`pl.yield_`: what the innermost loop carries on."""
        if self.carries:
            self.carries[-1].carry_on(values)

    # --- calls and tasks

    def count_call(self, function: str) -> None:
        self._calls[function] = self._calls.get(function, 0) + 1

    @contextmanager
    def call(self, function: str) -> Iterator[None]:
        """What is launched inside belongs to this call."""
        layers = self._recorder.layers
        layers.append(f"{function}#{self._calls.get(function, 0)}")
        try:
            yield
        finally:
            layers.pop()

    def name_of_region(self) -> str:
        """A region without name_hint is called after its function and its place in it, as PyPTO does."""
        site = sites.here()
        if site not in self._unnamed:
            function = sites.site(site).function.rpartition(".")[2]
            count = sum(name.startswith(f"{function}_incore_") for name in self._unnamed.values())
            self._unnamed[site] = f"{function}_incore_{count}"
        return self._unnamed[site]

    def opt_out(self, tensor: object) -> None:
        """`pl.no_dep` at an argument of the call to come."""
        self._opt_outs += 1
        self._opted_out.append(tensor)

    def take_opted_out(self) -> list[object]:
        """The arguments named since the last call."""
        found, self._opted_out = self._opted_out, []
        return found

    @contextmanager
    def reading_for_runtime(self) -> Iterator[None]:
        self.reads_for_runtime = True
        try:
            yield
        finally:
            self.reads_for_runtime = False

    # --- tasks that are like one another

    @property
    def tasks_are_self_contained(self) -> bool:
        """Whether a task is all that it does: none in a cluster, drawn by the compiler or with opt-outs pending."""
        return self.cluster is None and self.draws is None and not self._opted_out

    def marks(self) -> tuple[int, ...]:
        """Counts of all that a task can leave behind here."""
        recorder = self._recorder
        counted = (recorder.notes, recorder.host_reads, recorder.aliases)
        carried = [id(carry.values) for carry in self.carries]  # what pl.yield_ gave the loops around
        return (self.barriers, self._opt_outs, recorder.notice_count, *(len(held) for held in counted), *carried)
