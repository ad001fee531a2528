"""Whole numbers in GM that steer a program, with lanes: reads see, and writes leave, what one turn after another would.

`shapes` mode keeps these numbers real. A write of a turn waits until it is known which turns count as one; a turn that
touches what another would have changed goes on alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuscope.tile.run.block import Block
from npuscope.tile.run.state import Run
from npuscope.tile.values import lanes
from npuscope.tile.values.axes import AXES
from npuscope.tile.values.buffers import Buffer
from npuscope.tile.values.lanes import Lane


class Again(BaseException):
    """Lanes cannot say what this program does: it is run again, turn by turn and block by block."""


def log_write(run: Run, buffer: Buffer, offset: Any, value: Any) -> None:
    """One element per lane, written when the lanes are known for good."""
    outer = any(size > 1 for size in AXES.sizes[:-1])  # their passes end later than the writes can wait
    if outer:
        AXES.only_first()
    will_write(run, buffer)
    run.log.append((buffer, np.asarray(lanes.of(offset)), np.asarray(lanes.of(value))))
    if AXES.is_single():
        flush(run)


def will_write(run: Run, buffer: Buffer) -> None:
    """Before a write: what this turn read or wrote there already, the next turn would find changed."""
    run.writes += 1
    if buffer.id in run.log_reads or any(entry[0] is buffer for entry in run.log):
        AXES.only_first()
        flush(run)
    run.log_reads.add(buffer.id)
    _across_blocks(run, buffer, writes=True)


def log_read(run: Run, buffer: Buffer) -> None:
    if run.log and any(entry[0] is buffer for entry in run.log):
        AXES.only_first()
        flush(run)
    run.log_reads.add(buffer.id)
    _across_blocks(run, buffer, writes=False)


def _across_blocks(run: Run, buffer: Buffer, writes: bool) -> None:
    """Blocks that meet at a barrier and tell each other whole numbers cannot be run one after the other."""
    block = run.block
    if block is None or not run.lanes or block.blocks == 1:
        return
    told = block.task.told
    told[writes].add(buffer.id)
    if block.task.synced and told[False] & told[True]:
        raise Again


def meet(run: Run, block: Block) -> None:
    """A barrier, by lanes: nothing to wait for where all blocks come to it as one and tell each other no numbers."""
    task = block.task
    if block.blocks == 1:
        return
    if block.first == 0 and AXES.sizes[0] == block.blocks:
        task.synced = block.barriers
    if block.barriers > task.synced or task.told[False] & task.told[True]:
        raise Again


def end_pass(run: Run) -> int:
    """Ends the innermost pass of a loop; how many lanes were left of it."""
    if run.log:
        run.log = [(buffer, AXES.trim(where), AXES.trim(what)) for buffer, where, what in run.log]
    kept = AXES.close()
    if AXES.is_single():
        flush(run)
    return kept


def flush(run: Run) -> None:
    """Applies the waiting writes in the order the iterations would have made them: outermost loop slowest."""
    for buffer, offset, value in run.log:
        if buffer.data is None:
            continue
        where, what = np.broadcast_arrays(AXES.trim(offset), AXES.trim(value))
        buffer.data[where.T.reshape(-1)] = what.T.reshape(-1).astype(buffer.data.dtype)
    run.log.clear()
    run.log_reads.clear()


def lane_index(first: int, count: int, depth: int) -> Any:
    """The numbers first, first + 1, … along the axis of a loop."""
    if count == 1:
        return first
    return Lane(np.arange(first, first + count, dtype=np.int64).reshape(-1, *(1,) * depth))
