"""Looking for garbage less often, where many objects are made that stay.

A recording and its graph are hundreds of thousands of small objects. At Python's usual threshold (a look for every 700
new objects) the collector goes through them again and again, which takes as long as making them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_OFTEN_ENOUGH = 100_000  # new objects
_OF_A_JOB = 200_000  # a layer makes 60,000 that stay; a process that ends with its job need not look through them once


@contextmanager
def collected_rarely() -> Iterator[None]:
    """While inside; where the collector is off it stays off."""
    before = gc.get_threshold()
    if before[0]:
        gc.set_threshold(max(before[0], _OFTEN_ENOUGH), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def collect_rarely() -> None:
    """For the rest of a process that does one job and ends."""
    gc.set_threshold(_OF_A_JOB)
