"""What rewritten programs call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npuscope.tile.fault import fault
from npuscope.tile.loops import carried, holds_tasks
from npuscope.tile.regions import Spmd
from npuscope.tile.tasks import TaskId

__all__ = ["blocks", "carried", "holds_tasks", "launch", "left", "names"]


class Unbound:
    """A name that no statement has bound yet; using it is the user's mistake."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        raise fault(f"the name {self._name} is not bound in this block", "Blocks do not see each other's names.")


def names(values: dict[str, Any]) -> dict[str, Any]:
    return values


def launch(spmd: Any) -> TaskId:
    if not isinstance(spmd, Spmd):
        raise fault("spmd here is not pl.spmd")
    return spmd.launch()


def blocks(spmd: Spmd, body: Callable[..., Any], taken: tuple[str, ...], before: dict[str, Any]) -> dict[str, Any]:
    """Runs a launch; the names that its last block left."""
    values = [before.get(name, Unbound(name)) for name in taken]
    return spmd.run(lambda index: body(index, *values)) or {}


def left(after: dict[str, Any], name: str, before: dict[str, Any]) -> Any:
    """A name after a launch: as its last block left it, else as it was."""
    return after.get(name, before.get(name, Unbound(name)))
