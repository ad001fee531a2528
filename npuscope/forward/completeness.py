"""Which passes are whole, and which are a draft's (multi-token prediction) beside the main model's.

The capture's first pass may lack its begin and its last one its end; every other head and tail is whole, so those
tell how many rows there must be. A pass inside the capture with few attentions is a draft; one that lacks a few lost
them.
"""

from __future__ import annotations

import numpy as np

from npuscope.forward.boundaries import Stretches
from npuscope.forward.cuts import Bounds
from npuscope.forward.layers import Layers, most_common_size
from npuscope.forward.sequence import Flags
from npuscope.trace.intervals import Ints


def complete_and_draft(found: Stretches, bounds: Bounds, layer: Layers) -> tuple[Flags, Flags]:
    """For each pass whether it is whole, and whether it is a draft's."""
    sizes = np.diff(np.append(found.starts, len(found.anchors)))
    usual = most_common_size(sizes)
    begun = np.ones(len(sizes), dtype=bool)
    ended = np.ones(len(sizes), dtype=bool)
    before, after = bounds.first - bounds.begin, bounds.end - bounds.last - 1
    begun[0] = _as_long_as_others(before[0], before[1:][sizes[1:] == sizes[0]], layer.lead)
    ended[-1] = _as_long_as_others(after[-1], after[:-1][sizes[:-1] == sizes[-1]], layer.trail)
    whole = begun & ended
    small = sizes <= usual // 2
    inner = np.ones(len(sizes), dtype=bool)
    inner[[0, -1]] = False
    of_draft = np.isin(sizes, sizes[small & inner])
    draft = small & (inner | (of_draft & whole))
    return whole & ((sizes == usual) | draft), draft


def _as_long_as_others(rows: int, others: Ints, of_layer: int) -> bool:
    """Alone, a pass must have more than its layer's own kernels."""
    return bool(rows >= np.min(others)) if len(others) else rows > of_layer
