"""TraCR's trace points: 16-byte little-endian records without a header, and how they pair into slices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from npuscope.trace.intervals import Ints

RECORD = np.dtype([("channel", "<u2"), ("event", "<u2"), ("extra", "<u4"), ("time", "<u8")])
RESET, FLOW_START, FLOW_END = 65535, 65534, 65533
NO_EXTRA = 0xFFFFFFFF
CHANNELS = 1 << 16

Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Points:
    """Trace points as columns, which are much faster to work on than records."""

    channel: NDArray[np.uint16]
    event: NDArray[np.uint16]
    extra: NDArray[np.uint32]
    time: Ints  # nanoseconds; negative for a time beyond 2^63

    @staticmethod
    def of(records: np.ndarray) -> Points:
        channel, event, extra, time = (np.ascontiguousarray(records[name]) for name in RECORD.names or ())
        return Points(channel, event, extra, time.view(np.int64))

    @staticmethod
    def concat(parts: list[Points]) -> Points:
        if not parts:
            return Points.of(np.empty(0, dtype=RECORD))
        return Points(*(np.concatenate([getattr(p, name) for p in parts]) for name in Points.__dataclass_fields__))

    def take(self, which: Ints | Flags) -> Points:
        return Points(self.channel[which], self.event[which], self.extra[which], self.time[which])

    def __len__(self) -> int:
        return len(self.time)

    def by_channel(self) -> Points:
        """Sorted by channel, keeping the order within each; a stable sort of 16-bit numbers is linear."""
        return self.take(np.argsort(self.channel, kind="stable"))

    def by_time(self) -> Points:
        """Sorted by time, keeping the order of one moment."""
        return self.take(np.argsort(self.time, kind="stable"))

    def channels(self) -> Iterator[tuple[int, slice]]:
        """Each channel in use and its stretch of points, which must be sorted by channel."""
        ends = np.cumsum(np.bincount(self.channel, minlength=CHANNELS))
        begins = np.concatenate([[0], ends[:-1]])
        for channel in np.flatnonzero(ends > begins):
            yield int(channel), slice(int(begins[channel]), int(ends[channel]))


class Pairs(NamedTuple):
    """Positions of SETs and of the points that end them; SETs nothing ended; RESETs that ended nothing."""

    begin: Ints
    end: Ints
    unclosed: int
    idle_resets: int


def one_open_slice(is_set: Flags) -> Pairs:
    """TraCR's own reading of one channel: the next SET or RESET ends the open slice."""
    begin = np.flatnonzero(is_set[:-1])
    opened = np.zeros(len(is_set), dtype=bool)
    opened[1:] = is_set[:-1]
    return Pairs(begin, begin + 1, int(is_set[-1:].sum()), int(np.count_nonzero(~is_set & ~opened)))


def first_in_first_out(is_set: Flags) -> Pairs:
    """The reading for a core of the simpler runtime, which runs one task and holds the next.

    A SET queues a task, a RESET retires the oldest one; a RESET on an empty queue means nothing.
    """
    queued = np.cumsum(np.where(is_set, 1, -1))
    lowest = np.minimum.accumulate(np.minimum(queued, 0))
    fell = np.diff(lowest, prepend=0) < 0  # the queue was empty already
    begin, end = np.flatnonzero(is_set), np.flatnonzero(~is_set & ~fell)
    return Pairs(begin[: len(end)], end, len(begin) - len(end), int(fell.sum()))
