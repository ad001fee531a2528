"""What rewritten programs call."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any

from npuscope.tile.fault import fault
from npuscope.tile.run.loops import carried, holds_tasks
from npuscope.tile.run.regions import Spmd
from npuscope.tile.run.state import current
from npuscope.tile.shapes.carried import lists_of
from npuscope.tile.values.task_ids import TaskId

__all__ = ["UNBOUND", "blocks", "carried", "holds_tasks", "launch", "names", "region"]


UNBOUND = object()  # what a name holds that no statement has bound; the rewritten program deletes it again


_EMPTY = CellType()  # of a name that is not bound yet


def names(values: dict[str, Any]) -> dict[str, Any]:
    return values


def launch(spmd: Any) -> TaskId:
    if not isinstance(spmd, Spmd):
        raise fault("spmd here is not pl.spmd")
    return spmd.launch()


def blocks(
    spmd: Spmd, body: Callable[..., Any], taken: tuple[str, ...], left: tuple[str, ...], before: dict[str, Any]
) -> list[Any]:
    """Runs a launch; the names as its last block left them, else as they were."""
    values = [before.get(name, UNBOUND) for name in taken]
    cells = [cell.cell_contents for cell in getattr(body, "__closure__", None) or () if cell != _EMPTY]

    def execute() -> dict[str, Any]:
        return spmd.run(lambda index: body(index, *values), lists_of([*values, *cells])) or {}

    run = current()
    if run.together is None or spmd.task is None or spmd.skip or not spmd.blocks:
        return _handed_back(left, execute(), before)
    _, after = run.together.task(run, spmd.task, spmd.blocks, body, values, left, execute)
    return _handed_back(left, after, before)


def region(
    body: Callable[..., Any], taken: tuple[str, ...], left: tuple[str, ...], before: dict[str, Any]
) -> list[Any]:
    """Runs the body of pl.at; the names as it left them, else as they were."""
    values = [before.get(name, UNBOUND) for name in taken]
    run = current()
    block = run.block
    if run.together is None or block is None or not block.is_new:
        return _handed_back(left, body(*values), before)
    block.is_new = False
    block.waiting, after = run.together.task(run, block.task, 1, body, values, left, lambda: body(*values))
    return _handed_back(left, after, before)


def _handed_back(left: tuple[str, ...], after: dict[str, Any], before: dict[str, Any]) -> list[Any]:
    return [after[name] if name in after else before.get(name, UNBOUND) for name in left]
