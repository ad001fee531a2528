"""What rewritten programs call, and the scopes in which the compiler drew the tasks until June 2026.

What PyPTO's passes SplitChunkedLoops and InterchangeChunkLoops did in `pl.auto_incore()` and `pl.at(optimization=…)`:
- A `pl.parallel(…, chunk=n)` loop becomes a task per n turns. Chunked loops inside such a task run as plain loops; so
  do sequential ones (`pl.range(chunk=)`) anywhere.
- Of everything else, each run of statements that compute becomes a task: other loops with all that is in them, and
  ops. Statements that do not compute stay in orchestration and end such a run: whole-number arithmetic, and ops that
  only make, look at or arrange tensors (rewrite.py has them). A loop around chunked loops or other tasks stays in
  orchestration, its body is treated likewise. rewrite.py marks such statements in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from types import CellType
from typing import Any, TypeVar

from npuscope.ops import storage
from npuscope.ops.shaping import DECLARE
from npuscope.tile.calls.shaping import set_validshape
from npuscope.tile.enums import TensorLayout
from npuscope.tile.fault import fault
from npuscope.tile.language.history import note
from npuscope.tile.record.recorder import Launch
from npuscope.tile.run import loops
from npuscope.tile.run.loops import TileLoop, carried, counted, holds_tasks, in_orchestration, in_region, known_bounds
from npuscope.tile.run.regions import At, Split, Spmd, close, enter, laid_out, leave, open_task
from npuscope.tile.run.state import TileRun, current
from npuscope.tile.shapes.mode import changeable
from npuscope.tile.shapes.reuse import Code
from npuscope.tile.values.checks import TaskId, is_number, shape_of
from npuscope.tile.values.lanes import plain
from npuscope.tile.values.signature import MemRef, TensorView
from npuscope.tile.values.tensors import BOXES, Tensor, Tile

__all__ = ["UNBOUND", "blocks", "bound", "carried", "counted", "holds_tasks", "known_bounds", "launch", "outside"]
__all__ += ["declared", "outside_tensor", "region"]

UNBOUND = object()  # what a name holds that no statement has bound; the rewritten program deletes it again
_EMPTY = CellType()  # of a name that is not bound yet
Names = dict[str, object]
Value = TypeVar("Value")


def launch(spmd: object) -> TaskId:
    if not isinstance(spmd, Spmd):
        raise fault("spmd here is not pl.spmd")
    return spmd.launch()


def blocks(
    spmd: Spmd,
    body: Callable[..., Names],
    reads: tuple[str, ...] | None,
    taken: tuple[str, ...],
    left: tuple[str, ...],
    before: Names,
) -> list[object]:
    """Runs a launch; the names as its last block left them, else as they were."""
    values = [before.get(name, UNBOUND) for name in taken]
    cells = [cell.cell_contents for cell in getattr(body, "__closure__", None) or () if cell != _EMPTY]

    def execute(values: list[object]) -> Names:
        return spmd.run(lambda index: body(index, *values), changeable([*values, *cells])) or {}

    run = current()
    if spmd.task is None or spmd.skip or not spmd.blocks:
        return _handed_back(left, execute(values), before)
    _, after = run.perform(spmd.task, Code(body, reads), values, left, execute)
    return _handed_back(left, after, before)


def region(
    body: Callable[..., Names],
    reads: tuple[str, ...] | None,
    taken: tuple[str, ...],
    left: tuple[str, ...],
    before: Names,
) -> list[object]:
    """Runs the body of pl.at; the names as it left them, else as they were."""
    values = [before.get(name, UNBOUND) for name in taken]
    run = current()
    block = run.block
    if block is None or not block.starts_region:
        return _handed_back(left, body(*values), before)
    block.starts_region = False

    def execute(values: list[object]) -> Names:
        after = body(*values)
        if run.orchestration.cluster is None:
            close(run, block, 1)
        return after

    replayed, after = run.perform(block.task, Code(body, reads), values, left, execute)
    block.closed = block.closed or replayed
    return _handed_back(left, after, before)


def outside(function: Callable[..., object], *args: object, **kwargs: object) -> object:
    """In a scope in which tasks draw themselves: an op that stays in orchestration, after the task under way."""
    _end_drawn_task()
    return function(*args, **kwargs)


def outside_tensor(value: Value) -> Value:
    """The same for a tensor that is about to be subscripted."""
    if isinstance(value, Tensor | Tile):
        _end_drawn_task()
    return value


def bound(value: object) -> None:
    """The same for a name that was given a number."""
    if is_number(value):
        _end_drawn_task()


def _as_popped(tile: Tile, other: object) -> object:
    """The other one, which stands for a tile from now on: it frees that one's places in a ring."""
    block = current().block
    if block is not None and block.handover is not None and isinstance(other, Tile):
        block.handover.stands_for(other, tile)
    return other


def declared(value: object, *places: object) -> object:
    """A tile that an annotation puts into a buffer of the author's: `t: pl.Tile[…, m[i % 2], pl.Mem.Vec] = …`.

    What lay in that slot before is overwritten: who reads it from now on gets what lies there now.
    """
    layout = next((one.name for one in places if isinstance(one, TensorLayout)), "")
    if layout in BOXES and isinstance(value, Tensor) and value.fractal is None:
        return value.laid_out(layout)
    view = next((one for one in places if isinstance(one, TensorView) and one.valid_shape is not None), None)
    if view is not None and isinstance(value, Tile):
        value = _as_popped(value, set_validshape(value, *shape_of(view.valid_shape)[-2:]))
    place = next((one for one in places if isinstance(one, MemRef)), None)
    if place is None or not isinstance(value, Tile):
        return value
    run = current()
    block = run.region("MemRef")
    label = place.name or block.memrefs.setdefault(id(place.whole), f"MemRef {len(block.memrefs) + 1}")
    known = block.declared.setdefault(label, (place.slots, {}))
    if known[0] != place.slots:
        raise fault(f"pl.MemRef: {label} has {known[0]} slots elsewhere, {place.slots} here")
    attributes = (("memref", label), ("slots", place.slots))
    tile = run.result(DECLARE, (value,), value.shape, value.dtype, value.valid, value.space, attributes=attributes)
    _as_popped(value, tile)
    tile.array = value.array
    number = plain(place.index)
    if not isinstance(number, int):  # it differs from turn to turn
        return tile
    if not 0 <= number < place.slots:
        raise fault(f"pl.MemRef: slot {number} of {label}, which has {place.slots}", "Write m[i % slots].")
    before = known[1].get(number)
    if before is not None and before is not value:
        before.overwritten = f"slot {number} of {label} was given to another tile"
        same = (before.shape, before.dtype) == (tile.shape, tile.dtype)
        if before.array is not None and tile.array is not None:
            before.array = tile.array if same else storage.new(before.shape, before.dtype, storage.poison(before.dtype))
    known[1][number] = tile
    return tile


def _end_drawn_task() -> None:
    if (draws := current().orchestration.draws) is not None:
        draws.pause()


def _handed_back(left: tuple[str, ...], after: Names, before: Names) -> list[object]:
    return [after[name] if name in after else before.get(name, UNBOUND) for name in left]


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
        self.pause() if kind is None else run.leave()
        run.orchestration.draws = None

    def _open(self, run: TileRun) -> None:
        enter(run, open_task(run, self.name, 1, "at", Launch(**self.layout)))

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

    def _chunks(self, run: TileRun, loop: TileLoop, size: int) -> Iterator[object]:
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
                inner.note_names_of(loop)
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
    name_hint: str = "",
    predicate: object = None,
    **options: Any,
) -> At | AutoScope | Spmd:
    """`with pl.at(level=…):` is one task, with `predicate=` one that the runtime may leave out; with an option of its
    day that lets the compiler draw the tasks, several.
    """
    if optimization is not None and not isinstance(optimization, Optimizer):
        raise fault(f"pl.at: optimization= takes pl.chunked_loop_optimizer, not {optimization!r}")
    entries = [*(optimizations if isinstance(optimizations, list | tuple) else ())]
    drawn = next((one for one in [*entries, optimization] if isinstance(one, Optimizer)), None)
    if drawn is not None:
        if any(options.values()):
            about = "deps=, no_dep_args=, allow_early_resolve= and windowize= are about one task"
            raise fault(f"pl.at: {about}; {drawn.name} draws several", "Open each task with a pl.at.")
        splits = [one.mode for one in entries if isinstance(one, Split)] + [split, drawn.split]
        return AutoScope(drawn.name, next((mode for mode in splits if mode is not None), None), name_hint)
    if split is not None:
        current().recorder.notes.append(note("pl.at(split=)"))
        optimizations = [*entries, Split(split)]
    try:
        if predicate is not None:
            return Spmd(1, optimizations=optimizations, name_hint=name_hint or "at", predicate=predicate, **options)
        return At(level, role, optimizations=optimizations, name_hint=name_hint, **options)
    except TypeError as error:  # an option that it has not
        raise fault(str(error)) from None


def range_(*bounds: object, unroll: int | None = None, **options: Any) -> TileLoop:
    """`pl.range`; with `unroll=` of April 2026 what `pl.pipeline(stage=)` is now."""
    if unroll is None:
        return loops.range_(*bounds, **options)
    current().recorder.notes.append(note("pl.range(unroll=)"))
    return loops.pipeline(*bounds, stage=unroll, **options)


for _function, _title in ((at, "pl.at"), (At.__init__, "pl.at"), (range_, "pl.range"), (loops.range_, "pl.range")):
    _function.__qualname__ = _title  # what Python calls them in its messages
