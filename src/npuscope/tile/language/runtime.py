"""What rewritten programs call."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import TypeVar

from npuscope.tile.fault import fault
from npuscope.tile.run.limits import counted
from npuscope.tile.run.loops import carried, holds_tasks, known_bounds
from npuscope.tile.run.regions import Spmd, close
from npuscope.tile.run.state import current
from npuscope.tile.shapes.outside import Code
from npuscope.tile.shapes.turns import lists_of
from npuscope.tile.values.checks import is_number
from npuscope.tile.values.task_ids import TaskId
from npuscope.tile.values.tensors import Tensor, Tile

__all__ = [
    "UNBOUND",
    "blocks",
    "bound",
    "carried",
    "counted",
    "holds_tasks",
    "known_bounds",
    "launch",
    "names",
    "outside",
    "outside_tensor",
    "region",
]


UNBOUND = object()  # what a name holds that no statement has bound; the rewritten program deletes it again


_EMPTY = CellType()  # of a name that is not bound yet


Names = dict[str, object]
Value = TypeVar("Value")


def names(values: Names) -> Names:
    return values


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
        return spmd.run(lambda index: body(index, *values), lists_of([*values, *cells])) or {}

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


def _end_drawn_task() -> None:
    draws = current().orchestration.draws
    if draws is not None:
        draws.pause()


def _handed_back(left: tuple[str, ...], after: Names, before: Names) -> list[object]:
    return [after[name] if name in after else before.get(name, UNBOUND) for name in left]
