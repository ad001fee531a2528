"""Spellings of before June 2026 that programs still have: `pl.incore()`, `pl.auto_incore(split=)`, `chunk=`.

`auto_incore` let the compiler draw the tasks: every chunk of a loop with `chunk=` becomes a task, and so does what
stands between such loops.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from npuscope.tile.run.loops import Loop, in_orchestration, in_region
from npuscope.tile.run.optimizations import Split, laid_out
from npuscope.tile.run.regions import At, enter, leave, open_task
from npuscope.tile.run.state import Run, current


def incore(**options: Any) -> At:
    """One task, as `pl.at(level=pl.Level.CORE_GROUP)` is now."""
    current().recorder.notes.append("pl.incore() was removed in June 2026 (pypto#1819): write pl.at(level=…)")
    return At(**options)


class AutoIncore:
    """A scope in which tasks open by themselves."""

    def __init__(self, split: Any = None, name_hint: str = "", **_: Any) -> None:
        self.name = name_hint
        self.layout = laid_out([Split(split)])
        self.held = False

    def __enter__(self) -> None:
        run = current()
        note = "pl.auto_incore() was removed in June 2026 (pypto#1819): write pl.at(level=…, optimizations=[…])"
        run.recorder.notes.append(note)
        run.auto = self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        run = current()
        if kind is None:
            self.pause(run)
        else:
            run.block = None
        run.auto = None

    def start(self, run: Run) -> None:
        """An op outside every chunked loop: opens the task that holds it."""
        enter(run, open_task(run, self.name, 1, "at", **self.layout))
        self.held = True

    def pause(self, run: Run) -> None:
        """Ends the task that holds ops between loops."""
        if self.held:
            leave(run)
            self.held = False

    def turns(self, run: Run, loop: Loop) -> Iterator[Any]:
        """A loop in the scope: cut into tasks, around tasks, or a part of the task that holds it."""
        if loop.chunk:
            yield from self._chunks(run, loop)
        elif loop.holds_tasks:
            self.pause(run)
            for i in in_orchestration(run, loop):
                yield i
                self.pause(run)
        else:
            yield from in_region(run, run.region(loop.kind), loop)

    def _chunks(self, run: Run, loop: Loop) -> Iterator[Any]:
        """The turns of a loop, each chunk of them in a task."""
        self.pause(run)
        turns = range(int(loop.start), int(loop.stop), int(loop.step))
        size = loop.chunk or 1
        for first in range(0, len(turns), size):
            enter(run, open_task(run, self.name, 1, "at", **self.layout))
            part = turns[first : first + size]
            inner = Loop("range", (part.start, part.stop, part.step))
            inner.told, inner.names, inner.lists = loop.told, loop.names, loop.lists
            if size == 1:
                yield part[0]
            else:
                yield from inner
            leave(run)


def auto_incore(**options: Any) -> AutoIncore:
    return AutoIncore(**options)


class Optimization:
    """An entry of optimizations= that once existed."""

    retired = True

    def __init__(self, name: str) -> None:
        self.name = name


auto_chunk = Optimization("auto_chunk")
