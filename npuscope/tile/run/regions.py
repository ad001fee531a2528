"""Where tasks come from: `at`, `spmd`, and the scopes around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from npuscope.tile.enums import Level, Role, ScopeMode
from npuscope.tile.fault import fault
from npuscope.tile.record import sites
from npuscope.tile.record.recorder import TaskDraft
from npuscope.tile.run.aiv import check_block
from npuscope.tile.run.barrier import Barrier
from npuscope.tile.run.block import Block
from npuscope.tile.run.optimizations import laid_out
from npuscope.tile.run.state import Run, current
from npuscope.tile.shapes.carried import inside, unchanged
from npuscope.tile.shapes.steering import end_pass, lane_index
from npuscope.tile.values.axes import AXES
from npuscope.tile.values.checks import describe, flag, index, member, shown
from npuscope.tile.values.task_ids import TaskId, flat_ids
from npuscope.tile.values.tensors import Tensor, Tile

_MOST_BLOCKS = 1 << 24


def open_task(run: Run, kernel: str, blocks: int, form: str, deps: Any = None, **options: Any) -> TaskDraft:
    """Launches a task; only orchestration may."""
    if not kernel:
        kernel = unnamed(run)
    if run.block is not None:
        raise fault(f"a task inside the task {run.block.task.kernel}", "Tasks are launched in orchestration.")
    if run.cluster is not None:
        task: TaskDraft = run.cluster.task_of(run, blocks, form)
        return task
    return run.recorder.open_task(kernel, blocks, form, deps=flat_ids(deps), manual_scope=run.manual > 0, **options)


def unnamed(run: Run) -> str:
    """A region without name_hint is called after its function and its place in it, as PyPTO does."""
    site = sites.here()
    if site not in run.unnamed:
        function = sites.site(site).function.rpartition(".")[2]
        count = sum(name.startswith(f"{function}_incore_") for name in run.unnamed.values())
        run.unnamed[site] = f"{function}_incore_{count}"
    return run.unnamed[site]


def run_single(run: Run, task: TaskDraft, body: Callable[[], Any]) -> Any:
    """A task of one block around a call."""
    enter(run, task)
    try:
        result = body()
    except BaseException:
        run.block = None
        raise
    leave(run)
    return result


def enter(run: Run, task: TaskDraft) -> None:
    kept = None if run.cluster is None else run.cluster.block
    run.block = Block(task, 0, 0, 1) if kept is None else kept
    run.use(task.id)
    AXES.open(1)


def leave(run: Run) -> None:
    block = run.block
    assert block is not None
    end_pass(run)
    run.block = None
    run.use(None)
    if block.closed:
        return
    if run.cluster is not None:
        run.cluster.block = block  # stays open for the rest of the cluster
    else:
        close(run, block, 1)


def close(run: Run, block: Block, count: int) -> None:
    """Ends a block that stood for `count` blocks."""
    if block.splits:
        check_block(run.recorder, block)
    run.recorder.close_block(block, count)
    block.closed = True


def mark_no_dep(run: Run, task: TaskDraft, tensors: Sequence[Any]) -> None:
    if not tensors:
        return
    buffers = _no_dep_buffers(run, tensors)
    task.arguments = [argument.like(argument.key) for argument in task.arguments]  # other tasks may share them
    for argument in task.arguments:
        argument.no_dep = argument.no_dep or argument.key[0] in buffers


def _no_dep_buffers(run: Run, tensors: Sequence[Any]) -> set[int]:
    buffers = set()
    for tensor in tensors:
        if isinstance(tensor, Tile):
            tensor = run.promoted(tensor)
        if not isinstance(tensor, Tensor):
            raise fault(f"no_dep_args= lists tensors, not {describe(tensor)}")
        buffers.add(tensor.buffer.id)
    return buffers


def named(name_hint: Any, op: str) -> str:
    """The name of a task, as reports and traces will show it."""
    if not isinstance(name_hint, str) or not name_hint.isprintable():
        raise fault(f"pl.{op}: name_hint= must be a printable string, not {shown(name_hint)}")
    return name_hint


def _listed(values: Any, option: str) -> Sequence[Any]:
    if values is not None and not isinstance(values, list | tuple):
        raise fault(f"{option}= must be a list, not {shown(values)}")
    return values or ()


class At:
    """One task on one core group."""

    def __init__(
        self,
        level: Any = None,
        role: Any = None,
        *,
        optimizations: Sequence[Any] | None = None,
        deps: Any = None,
        no_dep_args: Sequence[Any] | None = None,
        dumps: Any = None,
        allow_early_resolve: bool = False,
        name_hint: str = "",
        windowize: bool = False,
    ) -> None:
        if level is not None:
            member(level, Level, "at", "level")
        if role is not None:
            member(role, Role, "at", "role")
        self.name = named(name_hint, "at")
        self.deps, self.early = deps, flag(allow_early_resolve, "at", "allow_early_resolve=")
        self.no_dep = _listed(no_dep_args, "no_dep_args")
        self.layout = laid_out(_listed(optimizations, "optimizations"))
        self.task: TaskDraft | None = None

    def __enter__(self) -> TaskId:
        run = current()
        if run.auto is not None:
            run.auto.pause(run)
        self.task = open_task(run, self.name, 1, "at", self.deps, early=self.early, **self.layout)
        enter(run, self.task)
        if run.block is not None:
            run.block.is_new = True
        return TaskId(self.task.id)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        run = current()
        if kind is not None:
            run.block = None
            return
        leave(run)
        assert self.task is not None
        mark_no_dep(run, self.task, self.no_dep)


class Spmd:
    """One task of n blocks; the body is a function of the block (the rewriter makes it one)."""

    def __init__(
        self,
        core_num: Any,
        *,
        sync_start: bool = False,
        name_hint: str = "",
        optimizations: Any = None,
        deps: Any = None,
        allow_early_resolve: bool = False,
        predicate: Any = None,
    ) -> None:
        self.blocks = int(index(core_num, "pl.spmd", "the number of blocks"))
        if not 0 <= self.blocks <= _MOST_BLOCKS:
            raise fault(f"pl.spmd with {self.blocks} blocks")
        self.name = named(name_hint, "spmd")
        self.skip = predicate is not None and not _holds(predicate)
        self.deps = deps
        self.options = {
            "sync_start": flag(sync_start, "spmd", "sync_start="),
            "early": flag(allow_early_resolve, "spmd", "allow_early_resolve="),
            "predicated": predicate is not None,
            "skipped": self.skip,
            **laid_out(optimizations if isinstance(optimizations, list | tuple) else ()),
        }
        self.task: TaskDraft | None = None

    def launch(self) -> TaskId:
        run = current()
        if run.auto is not None:
            run.auto.pause(run)
        self.task = open_task(run, self.name, self.blocks, "spmd", self.deps, **self.options)
        return TaskId(self.task.id)

    def run(self, body: Callable[[Any], Any], lists: Sequence[Any] = ()) -> Any:
        """Every block, each from the names bound before; what the last one returned. `lists`: what it may change."""
        if self.task is None:
            self.launch()
        task, run = self.task, current()
        assert task is not None
        if self.skip:
            return None
        last: list[Any] = [None]
        try:
            self._run_blocks(run, task, body, lists, last)
        finally:
            run.block = None
            run.use(None)
        mark_no_dep(run, task, run.no_dep_next)
        run.no_dep_next.clear()
        return last[0]

    def _run_blocks(
        self, run: Run, task: TaskDraft, body: Callable[[Any], Any], lists: Sequence[Any], last: list[Any]
    ) -> None:
        if not run.lanes:
            order = None if run.memories is None else run.memories.phase.blocks.get(task.id)
            run.use(task.id)
            barrier = Barrier(order or range(self.blocks), lambda k: self._block(run, task, k, body, last, barrier))
            barrier.run()
        else:
            first = 0
            while first < self.blocks:
                AXES.open(self.blocks - first)
                run.block = Block(task, first, lane_index(first, self.blocks - first, 0), self.blocks)
                before = [inside(held) for held in lists]
                last[0] = body(run.block.index)
                if not all(unchanged(one, inside(held)) for one, held in zip(before, lists, strict=True)):
                    AXES.keep(1)
                block = run.block
                block.root.offsets = AXES.trimmed(block.root.offsets)
                block.prologue_offsets = AXES.trimmed(block.prologue_offsets)
                done = end_pass(run)
                close(run, block, done)
                first += done

    def _block(
        self, run: Run, task: TaskDraft, k: int, body: Callable[[Any], Any], last: list[Any], barrier: Any
    ) -> None:
        block = run.block = Block(task, k, k, self.blocks)
        block.barrier = barrier
        result = body(k)
        close(run, block, 1)
        if k == self.blocks - 1:
            last[0] = result

    def __iter__(self) -> Iterator[Any]:
        raise fault(
            "this pl.spmd was not seen as a launch",
            "Write pl.spmd(…) alone in its own statement and by this name: `for i in pl.spmd(n):` or "
            "`with pl.spmd(n) as tid:` in a @pl.jit function.",
        )

    __enter__ = __iter__

    def __exit__(self, *_: Any) -> None:
        """Never reached: the rewriter replaces the statement."""


def _holds(predicate: Any) -> bool:
    """The runtime asks for the element when it dispatches; the orchestration does not wait for it."""
    if not callable(predicate):
        return flag(predicate, "spmd", "predicate=")
    run = current()
    run.asks_dispatch = True
    try:
        return flag(predicate(), "spmd", "predicate=")
    finally:
        run.asks_dispatch = False


class Scope:
    """A runtime scope: ring and lifetime of what is made in it. A manual one infers no edges."""

    def __init__(self, mode: Any = None, manual: bool = False) -> None:
        if mode is not None:
            member(mode, ScopeMode, "scope", "mode")
        self.manual = manual or mode is ScopeMode.MANUAL

    def __enter__(self) -> None:
        run = current()
        if run.block is not None:
            raise fault("a scope inside a task", "Scopes belong to orchestration.")
        if run.manual:
            kind = "a manual scope" if self.manual else "an automatic scope"
            raise fault(f"{kind} inside a manual scope", "Close the manual scope first.")
        run.recorder.open_scope(self.manual)
        run.manual += self.manual

    def __exit__(self, *_: Any) -> None:
        run = current()
        run.recorder.scopes.pop()
        run.manual -= self.manual


class Cluster:
    """Regions that one cluster of cores runs together: one task."""

    def __init__(self, name_hint: str = "") -> None:
        self.name = named(name_hint, "cluster")
        self.task: TaskDraft | None = None
        self.block: Block | None = None

    def __enter__(self) -> None:
        run = current()
        if run.block is not None or run.cluster is not None:
            raise fault("pl.cluster inside a task or another cluster")
        run.cluster = self

    def task_of(self, run: Run, blocks: int, form: str) -> TaskDraft:
        """The cluster's task; a launch of many blocks stands alone in it."""
        if self.task is None:
            name = self.name or unnamed(run).replace("_incore_", "_cluster_")
            self.task = run.recorder.open_task(name, blocks, form, deps=(), manual_scope=run.manual > 0)
        elif form == "spmd" or self.task.form == "spmd":
            raise fault("a pl.spmd launch stands alone in its pl.cluster")
        return self.task

    def __exit__(self, kind: Any, *_: Any) -> None:
        run = current()
        run.cluster = None
        if kind is None and self.block is not None:
            close(run, self.block, 1)


at, spmd = At, Spmd
At.__init__.__qualname__, Spmd.__init__.__qualname__ = "pl.at", "pl.spmd"  # what Python calls them in its messages


def scope(*, mode: Any = None) -> Scope:
    return Scope(mode)


def manual_scope() -> Scope:
    return Scope(manual=True)


def cluster(*, name_hint: str = "") -> Cluster:
    return Cluster(name_hint)


def no_dep(tensor: Any) -> Any:
    """At a call argument: that argument takes part in no dependency."""
    run = current()
    run.opt_outs += 1
    run.no_dep_next.append(tensor)
    return tensor
