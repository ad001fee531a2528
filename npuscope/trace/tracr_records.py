"""TraCR's trace points: 16-byte little-endian records without a header, and how they pair into slices."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npuscope.trace.intervals import Ints

RECORD = np.dtype([("channel", "<u2"), ("event", "<u2"), ("extra", "<u4"), ("time", "<u8")])
RESET, FLOW_START, FLOW_END = 65535, 65534, 65533
NO_EXTRA = 0xFFFFFFFF


class Pairs(NamedTuple):
    """Positions of SETs and of the records that end them; SETs nothing ended; RESETs that ended nothing."""

    begin: Ints
    end: Ints
    unclosed: int
    idle_resets: int


def one_open_slice(channel: NDArray[np.uint16], is_set: NDArray[np.bool_]) -> Pairs:
    """TraCR's own reading: the next SET or RESET of the channel ends the open slice.

    Records must be sorted by channel, then time.
    """
    same = np.zeros(len(channel), dtype=bool)  # is the next record of the same channel?
    same[:-1] = channel[1:] == channel[:-1]
    begin = np.flatnonzero(is_set & same)
    ended_something = np.zeros(len(channel), dtype=bool)
    ended_something[begin + 1] = True
    return Pairs(
        begin,
        begin + 1,
        int((is_set & ~same).sum()),
        int((~is_set & ~ended_something).sum()),
    )


def first_in_first_out(is_set: NDArray[np.bool_]) -> Pairs:
    """The reading for a core of the simpler runtime, which runs one task and holds the next.

    Records are one channel's, sorted by time. A SET queues a task, a RESET retires the oldest one; a
    RESET on an empty queue means nothing.
    """
    queued = np.cumsum(np.where(is_set, 1, -1))
    lowest = np.minimum.accumulate(np.minimum(queued, 0))
    fell = np.diff(lowest, prepend=0) < 0  # the queue was empty already
    begin, end = np.flatnonzero(is_set), np.flatnonzero(~is_set & ~fell)
    return Pairs(begin[: len(end)], end, len(begin) - len(end), int(fell.sum()))
