"""Where tasks come from: `at`, `spmd`, and the scopes around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from npuscope.tile.enums import Level, Role, ScopeMode, SplitMode
from npuscope.tile.fault import fault
from npuscope.tile.record.model import NO_EFFECT, Form, Half
from npuscope.tile.record.recorder import Launch, TaskDraft
from npuscope.tile.run.block import Barrier, Block, check_outside_regions
from npuscope.tile.run.orchestration import OpenCluster
from npuscope.tile.run.state import TileRun, current
from npuscope.tile.shapes.mode import contents, unchanged
from npuscope.tile.values.checks import TaskId, describe, flag, flat_ids, index, member, shown
from npuscope.tile.values.lanes import Lane
from npuscope.tile.values.tensors import Tensor, Tile

_MOST_BLOCKS = 1 << 24
Result = TypeVar("Result")

# --- the entries of `optimizations=[…]`: how a mixed task is laid out on its cube core and its two vector cores

_HALVES: dict[SplitMode, Half] = {SplitMode.UP_DOWN: "up_down", SplitMode.LEFT_RIGHT: "left_right"}


class Split:
    """pl.split(mode): each vector core takes half of every tile, by rows or by columns."""

    def __init__(self, mode: object = None, *, slot_num: object = None) -> None:
        self.mode, self.slot_num = mode, slot_num


class CrossCoreSlot:
    """pl.cross_core_slot(slot_num=n): depth of the ring between cube and vector cores."""

    def __init__(self, *, slot_num: object) -> None:
        self.slot_num = slot_num


def half_of(mode: object) -> Half | None:
    """The axis that a split halves."""
    return _HALVES.get(mode) if isinstance(mode, SplitMode) else None


def laid_out(entries: Sequence[object]) -> dict[str, Any]:
    """What the `Launch` of a task records of its optimizations: `split` and `ring_slots`."""
    layout: dict[str, Any] = {}
    for entry in entries:
        half = half_of(entry.mode) if isinstance(entry, Split) else None
        if half is not None:
            layout["split"] = half
        slots = entry.slot_num if isinstance(entry, Split | CrossCoreSlot) else None
        if slots is not None:
            layout["ring_slots"] = int(index(slots, "pl.cross_core_slot", "slot_num="))
            if layout["ring_slots"] < 1:
                raise fault(f"pl.cross_core_slot: slot_num={shown(slots)}; a ring has at least 1 slot")
    return layout


def func_attr(attrs: object) -> None:
    """What a kernel says of itself in its body; `slot_num` and `split` are its ring's and its vector cores'."""
    if not isinstance(attrs, dict):
        raise fault(f"pl.func_attr takes a dict, not {shown(attrs)}")
    entries = [Split(attrs.get("split"), slot_num=attrs.get("slot_num"))]
    for name, value in laid_out(entries).items():
        setattr(current().region("func_attr").task.launch, name, value)


# --- tasks and their blocks


def open_task(run: TileRun, kernel: str, blocks: int, form: Form, launch: Launch) -> TaskDraft:
    """Launches a task; only orchestration may."""
    orchestration = run.orchestration
    if not kernel:
        kernel = orchestration.name_of_region()
    if run.block is not None:
        raise fault(f"a task inside the task {run.block.task.kernel}", "Tasks are launched in orchestration.")
    cluster = orchestration.cluster
    if cluster is not None and cluster.task is not None:
        if form == "spmd" or cluster.task.form == "spmd":
            raise fault("a pl.spmd launch must be the only task in its pl.cluster")
        return cluster.task
    if cluster is not None:
        kernel = cluster.name or orchestration.name_of_region().replace("_incore_", "_cluster_")
        launch = Launch()
    launch.manual_scope = orchestration.in_manual_scope
    if orchestration.rank is not None:
        orchestration.rank.before_task(launch.deps)
    task = run.recorder.open_task(kernel, blocks, form, launch)
    task.computes = task.site in run.gm.slice.tasks
    if cluster is not None:
        cluster.task = task
    return task


def run_single(run: TileRun, task: TaskDraft, body: Callable[[], Result]) -> Result:
    """A task of one block around a call."""
    enter(run, task)
    try:
        result = body()
    except BaseException:  # whatever ends the body, an interrupt too, ends the block: others may follow in this run
        run.leave()
        raise
    leave(run)
    return result


def enter(run: TileRun, task: TaskDraft) -> Block:
    cluster = run.orchestration.cluster
    block = (cluster and cluster.block) or Block(task, 0, 0, 1)
    run.enter(block)
    run.shapes.begin_pass(1, None)
    return block


def leave(run: TileRun) -> None:
    block = run.block
    assert block is not None
    run.shapes.end_pass()
    run.leave()
    if block.closed:
        return
    cluster = run.orchestration.cluster
    if cluster is not None:
        cluster.block = block  # stays open for the rest of the cluster
    else:
        close(run, block, 1)


def close(run: TileRun, block: Block, count: int) -> None:
    """Ends a block that stood for `count` blocks."""
    if block.vector.used:
        check_outside_regions(run.recorder, block.root.items)
    run.recorder.close_block(block, count)
    block.closed = True


def mark_no_dep(run: TileRun, task: TaskDraft, tensors: Sequence[object]) -> None:
    """The task's arguments of these tensors take part in no dependency."""
    if not tensors:
        return
    buffers = set()
    for tensor in tensors:
        held = run.promoted(tensor) if isinstance(tensor, Tile) else tensor
        if not isinstance(held, Tensor):
            raise fault(f"no_dep_args= lists tensors, not {describe(tensor)}")
        buffers.add(held.buffer.id)
    task.arguments = [argument.like(argument.key) for argument in task.arguments]  # other tasks may share them
    for argument in task.arguments:
        argument.no_dep = argument.no_dep or argument.key[0] in buffers


def named(name_hint: object, op: str) -> str:
    """The name of a task, as reports and traces will show it."""
    if not isinstance(name_hint, str) or not name_hint.isprintable():
        raise fault(f"pl.{op}: name_hint= must be a printable string, not {shown(name_hint)}")
    return name_hint


def _listed(values: object, option: str) -> Sequence[object]:
    if values is None:
        return ()
    if not isinstance(values, list | tuple):
        raise fault(f"{option}= must be a list, not {shown(values)}")
    return values


def not_dumped(dumps: object, op: str) -> None:
    """Tensors that a device would write to files for whoever debugs it."""
    if _listed(dumps, "dumps"):
        current().recorder.notice(
            NO_EFFECT, f"pl.{op}: dumps= is of the device; npuscope run --trace-values shows values"
        )


class At:
    """One task on one core group; a chip's orchestration inside the host's is no task itself."""

    def __init__(
        self,
        level: object = None,
        role: object = None,
        *,
        optimizations: Sequence[object] | None = None,
        deps: object = None,
        no_dep_args: Sequence[object] | None = None,
        dumps: object = None,
        allow_early_resolve: bool = False,
        name_hint: str = "",
        windowize: bool = False,
    ) -> None:
        if level is not None:
            member(level, Level, "at", "level")
        if role is not None:
            member(role, Role, "at", "role")
        self.orchestrates = level is Level.CHIP and role is Role.Orchestrator
        self.name = named(name_hint, "at")
        self.deps, self.early = deps, flag(allow_early_resolve, "at", "allow_early_resolve=")
        self.no_dep = _listed(no_dep_args, "no_dep_args")
        self.layout = laid_out(_listed(optimizations, "optimizations"))
        self.windowize = flag(windowize, "at", "windowize=")
        not_dumped(dumps, "at")
        self.task: TaskDraft | None = None

    def __enter__(self) -> TaskId | None:
        run = current()
        if self.orchestrates:
            return None
        if run.orchestration.draws is not None:
            run.orchestration.draws.pause()
        launch = Launch(flat_ids(self.deps), early=self.early, windowize=self.windowize, **self.layout)
        self.task = open_task(run, self.name, 1, "at", launch)
        enter(run, self.task).starts_region = True
        return TaskId(self.task.id)

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        run = current()
        if self.orchestrates:
            return
        if kind is not None:
            run.leave()
            return
        leave(run)
        assert self.task is not None
        mark_no_dep(run, self.task, self.no_dep)


class Spmd:
    """One task of n blocks; the body is a function of the block (the rewriter makes it one)."""

    def __init__(
        self,
        core_num: object,
        *,
        sync_start: bool = False,
        name_hint: str = "",
        optimizations: object = None,
        deps: object = None,
        allow_early_resolve: bool = False,
        predicate: object = None,
    ) -> None:
        self.blocks = max(0, int(index(core_num, "pl.spmd", "the number of blocks")))  # below 0 it is empty, too
        if self.blocks > _MOST_BLOCKS:
            raise fault(f"pl.spmd with {self.blocks} blocks")
        self.name = named(name_hint, "spmd")
        self.skip = predicate is not None and not _holds(predicate)
        self._launch = Launch(
            sync_start=flag(sync_start, "spmd", "sync_start="),
            early=flag(allow_early_resolve, "spmd", "allow_early_resolve="),
            predicated=predicate is not None,
            skipped=self.skip,
            **laid_out(optimizations if isinstance(optimizations, list | tuple) else ()),
        )
        self._deps = deps
        self.task: TaskDraft | None = None

    def launch(self) -> TaskId:
        run = current()
        if run.orchestration.draws is not None:
            run.orchestration.draws.pause()
        self._launch.deps = flat_ids(self._deps)
        self.task = open_task(run, self.name, self.blocks, "spmd", self._launch)
        return TaskId(self.task.id)

    def run(self, body: Callable[[int | Lane], Result], lists: Sequence[object] = ()) -> Result | None:
        """Every block, each from the names bound before; what the last one returned. `lists`: what it may change."""
        if self.task is None:
            self.launch()
        task, run = self.task, current()
        assert task is not None
        if self.skip:
            return None
        try:
            result = (self._by_lanes if run.shapes.has_lanes(task) else self._one_by_one)(run, task, body, lists)
        finally:
            run.leave()
        mark_no_dep(run, task, run.orchestration.take_opted_out())
        return result

    def _one_by_one(
        self, run: TileRun, task: TaskDraft, body: Callable[[int | Lane], Result], _: Sequence[object]
    ) -> Result | None:
        last: list[Result] = []
        order = None if run.gm.phase is None else run.gm.phase.blocks.get(task.id)

        def block_of(number: int) -> None:
            block = Block(task, number, number, self.blocks)
            block.barrier = barrier
            run.enter(block)
            result = body(number)
            close(run, block, 1)
            if number == self.blocks - 1:
                last.append(result)

        barrier = Barrier(order or range(self.blocks), block_of)
        barrier.run()
        return last[0] if last else None

    def _by_lanes(
        self, run: TileRun, task: TaskDraft, body: Callable[[int | Lane], Result], lists: Sequence[object]
    ) -> Result | None:
        """Runs the body once for each run of blocks that behave alike (see values/lanes.py)."""
        shapes, result = run.shapes, None
        first = 0
        while first < self.blocks:
            shapes.begin_pass(self.blocks - first, None)
            block = Block(task, first, shapes.lane_numbers(first, self.blocks - first, 0), self.blocks)
            run.enter(block)
            before = [contents(one) for one in lists]
            result = body(block.index)
            if not all(unchanged(one, contents(now)) for one, now in zip(before, lists, strict=True)):
                shapes.axes.keep(1)
            block.root.offsets = shapes.trimmed(block.root.offsets)
            block.prologue_offsets = shapes.trimmed(block.prologue_offsets)
            done = shapes.end_pass()
            close(run, block, done)
            first += done
        return result

    def __iter__(self) -> Iterator[NoReturn]:
        raise fault(
            "this pl.spmd was not seen as a launch",
            "Write pl.spmd(…) alone in its own statement and by this name: `for i in pl.spmd(n):` or "
            "`with pl.spmd(n) as tid:` in a @pl.jit function.",
        )

    __enter__ = __iter__

    def __exit__(self, *_: object) -> None:
        """Never reached: the rewriter replaces the statement."""


def _holds(predicate: object) -> bool:
    """The runtime asks for the element when it dispatches; the orchestration does not wait for it."""
    if not callable(predicate):
        return flag(predicate, "spmd", "predicate=")
    with current().orchestration.reading_for_runtime():
        return flag(predicate(), "spmd", "predicate=")


class RuntimeScope:
    """A runtime scope: ring and lifetime of what is made in it. A manual one infers no edges."""

    def __init__(self, *, mode: object = None) -> None:
        if mode is not None:
            member(mode, ScopeMode, "scope", "mode")
        self.manual = mode is ScopeMode.MANUAL

    def __enter__(self) -> None:
        run = current()
        if run.block is not None:
            raise fault("a scope inside a task", "Scopes belong to orchestration.")
        run.orchestration.open_scope(self.manual)

    def __exit__(self, *_: object) -> None:
        current().orchestration.close_scope()


class Cluster:
    """Regions that one cluster of cores runs together: one task."""

    def __init__(self, *, name_hint: str = "") -> None:
        self.name = named(name_hint, "cluster")

    def __enter__(self) -> None:
        run = current()
        if run.block is not None or run.orchestration.cluster is not None:
            raise fault("pl.cluster inside a task or another cluster")
        run.orchestration.cluster = OpenCluster(self.name)

    def __exit__(self, kind: object, *_: object) -> None:
        run = current()
        block = run.orchestration.close_cluster()
        if kind is None and block is not None:
            close(run, block, 1)


@contextmanager
def graph(name: str) -> Iterator[None]:
    """`with pl.graph("name"):` in an entry: what it launches is recorded once and replayed."""
    run = current()
    if run.block is not None:
        raise fault("pl.graph inside a task", "Graphs belong to orchestration.")
    if not named(name, "graph"):
        raise fault("pl.graph needs a name")
    run.orchestration.count_call(name)
    with run.orchestration.graphs.call(name, ()), run.orchestration.call(name):
        yield


at, spmd, scope, cluster = At, Spmd, RuntimeScope, Cluster
_STATEMENTS: dict[str, type] = {"at": At, "spmd": Spmd, "scope": RuntimeScope, "cluster": Cluster}
for _name, _class in _STATEMENTS.items():
    vars(_class)["__init__"].__qualname__ = f"pl.{_name}"  # what Python calls it in its messages


def manual_scope() -> RuntimeScope:
    return RuntimeScope(mode=ScopeMode.MANUAL)


def no_dep(tensor: Result) -> Result:
    """At a call argument: that argument takes part in no dependency."""
    current().orchestration.opt_out(tensor)
    return tensor
