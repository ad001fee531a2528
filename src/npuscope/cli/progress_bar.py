"""A progress bar on stderr, when a terminal is there and work takes longer than a second."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

PATIENCE_S = 1.0


@contextmanager
def progress_bar() -> Iterator[None]:
    """Draw what the block's readers and writers report."""
    from npuscope.base import progress

    if not sys.stderr.isatty():
        yield
        return
    bar = _Bar()
    try:
        with progress.listen(bar.update):
            yield
    finally:
        bar.close()


class _Bar:
    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._later: threading.Timer | None = None

    def update(self, what: str, done: int, total: int) -> None:
        self._forget()
        left = PATIENCE_S - (time.monotonic() - self._begin)
        if left > 0:  # shown then, if nothing is reported before: the work may be long and silent
            self._later = threading.Timer(left, self._draw, (what, done, total))
            self._later.daemon = True
            self._later.start()
            return
        self._draw(what, done, total)

    def _forget(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later.join()
            self._later = None

    def _draw(self, what: str, done: int, total: int) -> None:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(console=Console(stderr=True), transient=True)
            self._progress.start()
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total or None)
        self._progress.update(self._tasks[what], completed=done, total=total or None)

    def close(self) -> None:
        self._forget()
        if self._progress is not None:
            self._progress.stop()
