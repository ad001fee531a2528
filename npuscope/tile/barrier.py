"""A real rendezvous of the blocks of one launch.

Blocks run one after another until the first of them reaches a barrier. Then each of the others is run in a thread of
its own up to its barrier; only one thread ever runs at a time, handing over by semaphores, so the result does not
depend on timing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from npuscope.tile.fault import fault
from npuscope.tile.state import Block, current


class _Abandoned(BaseException):
    """Ends the threads of a launch that failed."""


class Strand:
    """One block in a thread, run in slices: `advance` lets it run to its next barrier or its end."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self.ended = False
        self.error: BaseException | None = None
        self._abandoned = False
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Callable[[], None]) -> None:
        self._go.acquire()
        try:
            if not self._abandoned:
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
        self._back.release()
        self._go.acquire()
        if self._abandoned:
            raise _Abandoned

    def abandon(self) -> None:
        self._abandoned = True
        self._go.release()


class Barrier:
    """The blocks of one launch; `run_block(k)` executes block k."""

    def __init__(self, blocks: int, run_block: Callable[[int], None]) -> None:
        self._blocks, self._run_block = blocks, run_block
        self._strands: dict[int, Strand] = {}

    def run(self) -> None:
        """All blocks to their end."""
        try:
            for k in range(self._blocks):
                if self._strands:
                    break
                self._run_block(k)
                if self._strands and k == 0:
                    self._finish()
        finally:
            for strand in self._strands.values():
                if not strand.ended:
                    strand.abandon()

    def wait(self, block: Block) -> None:
        """One block reached a barrier."""
        if block.first in self._strands:
            self._strands[block.first].pause()
            current().block = block
            return
        if block.first != 0:
            raise fault(
                f"pl.system.syncall: block {block.first} waits for block 0, which ended without it",
                "Every block must reach every barrier.",
            )
        run = current()
        if not self._strands:
            self._strands = {k: Strand(lambda k=k: self._run_block(k)) for k in range(1, self._blocks)}  # type: ignore[misc]
        self._advance_all()
        late = [k for k, strand in self._strands.items() if strand.ended]
        if late:
            raise fault(
                f"pl.system.syncall: block 0 waits for block {late[0]}, which ended without it",
                "Every block must reach every barrier.",
            )
        run.block = block

    def _advance_all(self) -> None:
        for strand in self._strands.values():
            strand.advance()

    def _finish(self) -> None:
        self._advance_all()
        stuck = [k for k, strand in self._strands.items() if not strand.ended]
        if stuck:
            raise fault(
                f"pl.system.syncall: block {stuck[0]} waits for block 0, which ended without it",
                "Every block must reach every barrier.",
            )
