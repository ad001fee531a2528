"""Which lines of GM a block reads: a line read again, or by a row beside, comes from L2 and not from HBM."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuscope.tile.graph.exact import once
from npuscope.tile.record.model import Access
from npuscope.time.chip.job import Ints

MOST = 1 << 21  # spans that are looked at one by one; of more, an even sample


def distinct_lines(boxes: Sequence[tuple[Access, Ints]], size: int, line: int) -> int:
    """How many lines lie under boxes of elements of `size` bytes, each box at all its offsets, counted once."""
    found: list[Ints] = []
    share = 1.0
    for access, offsets in boxes:
        outer = list(zip(access.shape, access.strides, strict=True))
        span = 1
        while outer and (outer[-1][1] == span or outer[-1][0] == 1):
            span *= outer.pop()[0]
        starts = once(offsets.reshape(-1))
        for extent, stride in outer:
            starts = once((starts[:, None] + np.arange(extent, dtype=np.int64) * stride).reshape(-1))
            if len(starts) > MOST:
                step = -(-len(starts) // MOST)
                starts, share = starts[::step], share * step
        first, last = starts * size // line, ((starts + span) * size - 1) // line
        reach = np.arange(int(np.max(last - first)) + 1, dtype=np.int64)
        lines = first[:, None] + reach
        found.append(lines[lines <= last[:, None]])
    return round(len(once(np.concatenate(found))) * share) if found else 0
