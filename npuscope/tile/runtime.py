"""What rewritten programs call."""

from __future__ import annotations

from collections.abc import Callable
from types import CellType
from typing import Any

from npuscope.tile.carried import lists_of
from npuscope.tile.fault import fault
from npuscope.tile.loops import carried, holds_tasks
from npuscope.tile.regions import Spmd
from npuscope.tile.tasks import TaskId

__all__ = ["UNBOUND", "blocks", "carried", "holds_tasks", "launch", "left", "names"]


UNBOUND = object()  # what a name holds that no statement has bound; the rewritten program deletes it again


_EMPTY = CellType()  # of a name that is not bound yet


def names(values: dict[str, Any]) -> dict[str, Any]:
    return values


def launch(spmd: Any) -> TaskId:
    if not isinstance(spmd, Spmd):
        raise fault("spmd here is not pl.spmd")
    return spmd.launch()


def blocks(spmd: Spmd, body: Callable[..., Any], taken: tuple[str, ...], before: dict[str, Any]) -> dict[str, Any]:
    """Runs a launch; the names that its last block left."""
    values = [before.get(name, UNBOUND) for name in taken]
    cells = [cell.cell_contents for cell in getattr(body, "__closure__", None) or () if cell != _EMPTY]
    return spmd.run(lambda index: body(index, *values), lists_of([*values, *cells])) or {}


def left(after: dict[str, Any], name: str, before: dict[str, Any]) -> Any:
    """A name after a launch: as its last block left it, else as it was."""
    return after.get(name, before.get(name, UNBOUND))
