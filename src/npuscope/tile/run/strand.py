"""Work that runs in slices: several pieces share one interpreter and hand over at places of their own choosing.

Each strand is a thread, but only one ever runs at a time, handing over by semaphores, so the result does not depend on
timing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

_NAME = "npuscope strand"


def in_strand() -> bool:
    """Whether this thread is a strand's: part of the run that made it."""
    return threading.current_thread().name == _NAME


class _Abandoned(BaseException):
    """Ends the thread of a strand that nobody will advance again."""


class Strand:
    """`advance` lets the work run to its next `pause` or its end."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.ended = False
        self.error: BaseException | None = None
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True, name=_NAME)
        self._thread.start()

    def _run(self, work: Callable[[], object]) -> None:
        self._go.acquire()
        try:
            if not self._abandoned:
                with np.errstate(all="ignore"):  # as the run has it; a thread has its own
                    work()
        except _Abandoned:
            pass
        except BaseException as error:
            self.error = error
        self.ended = True
        self._back.release()

    def advance(self) -> None:
        self._go.release()
        self._back.acquire()
        if self.error is not None:
            raise self.error

    def pause(self) -> None:
        """Called in the strand: hands over until the next `advance`."""
        if not self._abandoned:
            self._back.release()
            self._go.acquire()
        if self._abandoned:
            raise _Abandoned

    def abandon(self) -> None:
        """Ends the work where it stands; its own clean-up is done when this returns."""
        self._abandoned = True
        self._go.release()
        self._back.acquire()
