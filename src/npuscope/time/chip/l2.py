"""What a block finds in L2: boxes of GM by last use, in the order of submission.

Tensors that take little of L2 count as a whole; of larger ones (weights, caches) every box that a block reads is one
entry. An entry that was not read or written since more bytes than L2 holds passed through comes from HBM.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

SMALL = 1 / 16  # of L2: a tensor below it counts as a whole


class Cache:
    """Entries by last use, up to a number of bytes."""

    def __init__(self, size: float) -> None:
        self.size = size
        self.held = 0.0
        self._entries: OrderedDict[Hashable, float] = OrderedDict()

    def touch(self, key: Hashable, size: float) -> bool:
        """Whether it was there; afterwards it is."""
        known = self._entries.pop(key, None)
        self._entries[key] = size
        self.held += size - (known or 0.0)
        while self.held > self.size and len(self._entries) > 1:
            _, gone = self._entries.popitem(last=False)
            self.held -= gone
        return known is not None
