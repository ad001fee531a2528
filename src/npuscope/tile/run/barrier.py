"""A real rendezvous of the blocks of one launch.

Blocks run one after another until the first of them reaches a barrier. Then each of the others is run in a thread of
its own up to its barrier; only one thread ever runs at a time, handing over by semaphores, so the result does not
depend on timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from npuscope.tile.fault import TileError, fault
from npuscope.tile.run.block import Block
from npuscope.tile.run.state import current
from npuscope.tile.run.strand import Strand

MOST = 48  # vector cores of a die (`cores.vector` of its device file); blocks of cube or mixed kernels have 24


class Barrier:
    """The blocks of one launch in the order in which they run; `run_block(k)` executes block k."""

    def __init__(self, blocks: Sequence[int], run_block: Callable[[int], None]) -> None:
        self._blocks, self._run_block = blocks, run_block
        self._strands: dict[int, Strand] = {}

    def run(self) -> None:
        """All blocks to their end."""
        try:
            for k in self._blocks:
                if self._strands:
                    break
                self._run_block(k)
                if self._strands:
                    self._finish()
        finally:
            for strand in self._strands.values():
                if not strand.ended:
                    strand.abandon()

    def wait(self, block: Block) -> None:
        """One block reached a barrier."""
        if block.first in self._strands:
            self._strands[block.first].pause()
            current().resume(block)
            return
        if block.first != self._blocks[0]:
            raise _missed(block.first, self._blocks[0])
        run = current()
        if (count := len(self._blocks)) > MOST:
            raise fault(
                f"pl.system.syncall: {count} blocks cannot be on cores at once: there are {MOST} vector cores",
                "Launch at most as many blocks as there are cores, and let each take several items.",
            )
        if not self._strands:
            self._strands = {k: Strand(lambda k=k: self._run_block(k)) for k in self._blocks[1:]}  # type: ignore[misc]
        self._advance_all()
        late = [k for k, strand in self._strands.items() if strand.ended]
        if late:
            raise _missed(block.first, late[0])
        run.resume(block)

    def _advance_all(self) -> None:
        for strand in self._strands.values():
            strand.advance()

    def _finish(self) -> None:
        self._advance_all()
        stuck = [k for k, strand in self._strands.items() if not strand.ended]
        if stuck:
            raise _missed(stuck[0], self._blocks[0])


def _missed(one: int, other: int) -> TileError:
    what = f"pl.system.syncall: block {one} waits for block {other}, which ended without it"
    return fault(what, "Every block must reach every barrier.")
