"""Scopes in which the compiler drew the tasks, until June 2026: `pl.auto_incore()`, `pl.at(optimization=…)`.

What PyPTO's passes SplitChunkedLoops and InterchangeChunkLoops did:
- A `pl.parallel(…, chunk=n)` loop becomes a task per n turns. Chunked loops inside such a task run as plain loops; so
  do sequential ones (`pl.range(chunk=)`) anywhere.
- Of everything else, each run of statements that compute becomes a task: other loops with all that is in them, and
  ops. Statements that do not compute stay in orchestration and end such a run: whole-number arithmetic, and ops that
  only make, look at or arrange tensors (`create_tensor`, `slice`, `assemble`, `reshape`, `transpose`, `read`, `write`,
  `dim`). A loop around chunked loops or other tasks stays in orchestration, its body is treated likewise.

auto_marks.py marks such statements in the text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from npuscope.tile.fault import fault
from npuscope.tile.language.history import note
from npuscope.tile.record.drafts import Launch
from npuscope.tile.run import loops
from npuscope.tile.run.loops import TileLoop, in_orchestration, in_region
from npuscope.tile.run.optimizations import Split, laid_out
from npuscope.tile.run.regions import At, enter, leave, open_task
from npuscope.tile.run.state import Run, current


class Optimizer:
    """`pl.chunked_loop_optimizer`, `pl.auto_chunk`: as an option of pl.at it makes the compiler draw the tasks."""

    def __init__(self, name: str, split: object = None) -> None:
        self.name, self.split = name, split

    def __call__(self, *, split: object = None) -> Optimizer:
        return Optimizer(self.name, split)


class AutoScope:
    """A scope in which tasks open by themselves."""

    def __init__(self, spelling: str, split: object = None, name_hint: str = "") -> None:
        self.spelling, self.name = spelling, name_hint
        self.layout = laid_out([Split(split)])
        self.held = False  # whether the task that holds statements between loops is open

    def __enter__(self) -> None:
        run = current()
        if run.block is not None:
            raise fault(f"{self.spelling} inside a task", "Such a scope draws tasks: open it in orchestration.")
        if run.orchestration.draws is not None:
            raise fault(f"{self.spelling} inside another such scope")
        run.recorder.notes.append(note(self.spelling))
        run.orchestration.draws = self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        run = current()
        if kind is None:
            self.pause()
        else:
            run.leave()
        run.orchestration.draws = None

    def _open(self, run: Run) -> None:
        enter(run, open_task(run, self.name, 1, "at", Launch(**self.layout._asdict())))

    def start(self) -> None:
        """An op outside every chunked loop: opens the task that holds it."""
        self._open(current())
        self.held = True

    def pause(self) -> None:
        """Ends the task that holds statements between loops."""
        if self.held:
            leave(current())
            self.held = False

    def turns(self, loop: object) -> Iterator[object]:
        """A loop in the scope: cut into tasks, around tasks, or a part of the task that holds it."""
        assert isinstance(loop, TileLoop)
        run = current()
        if loop.chunk is not None and loop.kind == "parallel":
            yield from self._chunks(run, loop, loop.chunk)
        elif loop.holds_tasks:
            self.pause()
            for i in in_orchestration(run, loop):
                yield i
                self.pause()
        else:
            yield from in_region(run, run.region(loop.kind), loop)

    def _chunks(self, run: Run, loop: TileLoop, size: int) -> Iterator[object]:
        """The turns of a loop, each chunk of them in a task."""
        self.pause()
        turns = loop.turns()
        for first in run.orchestration.turns("parallel", range(0, len(turns), size)):
            self._open(run)
            part = turns[first : first + size]
            if size == 1:
                yield part[0]
            else:
                inner = TileLoop("range", (part.start, part.stop, part.step))
                inner.tell_like(loop)
                yield from inner
            leave(run)


# --- the spellings


def incore(*, split: object = None, name_hint: str = "") -> At:
    """One task, as `pl.at(level=pl.Level.CORE_GROUP)` is now."""
    if split is not None:
        current().recorder.notes.append(note("pl.incore(split=)"))
    return At(optimizations=[Split(split)], name_hint=name_hint)


def auto_incore(*, split: object = None, name_hint: str = "") -> AutoScope:
    return AutoScope("pl.auto_incore()", split, name_hint)


chunked_loop_optimizer = Optimizer("pl.at(optimization=)")
auto_chunk = Optimizer("pl.auto_chunk")


def at(
    level: object = None,
    role: object = None,
    *,
    optimizations: Sequence[object] | None = None,
    optimization: object = None,
    split: object = None,
    deps: object = None,
    no_dep_args: Sequence[object] | None = None,
    dumps: object = None,
    allow_early_resolve: bool = False,
    name_hint: str = "",
    windowize: bool = False,
) -> At | AutoScope:
    """`with pl.at(level=…):` is one task; with an option of its day that lets the compiler draw the tasks, several."""
    if optimization is not None and not isinstance(optimization, Optimizer):
        raise fault(f"pl.at: optimization= takes pl.chunked_loop_optimizer, not {optimization!r}")
    entries = [*(optimizations if isinstance(optimizations, list | tuple) else ())]
    drawn = next((one for one in [*entries, optimization] if isinstance(one, Optimizer)), None)
    if drawn is not None:
        if deps or no_dep_args or allow_early_resolve or windowize:
            said = "deps=, no_dep_args=, allow_early_resolve= and windowize= are about one task"
            raise fault(f"pl.at: {said}; {drawn.name} draws several", "Open each task with a pl.at.")
        splits = [one.mode for one in entries if isinstance(one, Split)] + [split, drawn.split]
        return AutoScope(drawn.name, next((mode for mode in splits if mode is not None), None), name_hint)
    if split is not None:
        current().recorder.notes.append(note("pl.at(split=)"))
        optimizations = [*entries, Split(split)]
    return At(
        level,
        role,
        optimizations=optimizations,
        deps=deps,
        no_dep_args=no_dep_args,
        dumps=dumps,
        allow_early_resolve=allow_early_resolve,
        name_hint=name_hint,
        windowize=windowize,
    )


def range_(
    *bounds: object,
    init_values: object = None,
    chunk: object = None,
    chunk_policy: object = None,
    unroll: int | None = None,
    attrs: object = None,
) -> TileLoop:
    """`pl.range`; with `unroll=` of April 2026 what `pl.pipeline(stage=)` is now."""
    if unroll is None:
        return loops.range_(*bounds, init_values=init_values, chunk=chunk, chunk_policy=chunk_policy, attrs=attrs)
    current().recorder.notes.append(note("pl.range(unroll=)"))
    return loops.pipeline(*bounds, stage=unroll, init_values=init_values, attrs=attrs)


at.__qualname__, range_.__qualname__ = "pl.at", "pl.range"  # what Python calls them in its messages
