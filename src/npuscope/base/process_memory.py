"""How this process uses its memory: what it keeps, what it gives back, how often it looks for garbage, where its calls
lie.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from types import FunctionType
from typing import TypeVar, cast

Result = TypeVar("Result")

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of <malloc.h>
_LARGE = 256 * 2**10  # KiB of a process
_KEPT = 64 * 2**20  # bytes of free memory kept at the top of the heap
_TILE = 4 * 2**20  # larger allocations (tensors in GM, not tiles) still go straight back to the system
_OFTEN_ENOUGH = 100_000  # new objects until the next look for garbage
_OF_A_JOB = 200_000  # a layer makes 60,000 that stay: a process that ends with its job looks through them not once


@cache
def keep_freed_memory() -> bool:
    """Keeps the memory of freed tiles in the process, so that the next tile does not fault in fresh pages.

    glibc gives memory at the top of its heap back to the system at every free, and a 256 KB tile comes and goes with
    each op. Measured on 256x256 fp32, on and off: three bf16 loads 26 and 465 us, a cast to int32 20 and 210 us, the
    int8 quantisation of three casts 48 and 240 us, x / (1 + exp(-x)) 53 and 440 us. For the whole process, once;
    whether the C library has such a setting (glibc does, others need none).
    """
    mallopt = _of_c("mallopt")
    return bool(mallopt and mallopt(_TRIM_THRESHOLD, _KEPT) and mallopt(_MMAP_THRESHOLD, _TILE))


def give_back() -> None:
    """Returns free memory to the system, where the C library can.

    It keeps the holes that a reader's temporary arrays leave: after reading 2.16 M events, 98 of 433 MB. To a process
    that never was large they are worth more than the memory: without them a report of 216 k events takes 5% longer.
    """
    trim = _of_c("malloc_trim")
    with suppress(ImportError):  # Windows has neither
        from resource import RUSAGE_SELF, getrusage

        if trim and getrusage(RUSAGE_SELF).ru_maxrss > _LARGE:
            trim(0)


def _call(call: Callable[[], Result]) -> Result:
    return call()


def on_one_stack(call: Callable[[], Result]) -> Result:
    """Makes a call so that those inside it find their frames in one piece of memory.

    Python keeps frames in pieces of 16 KiB, each asked from the system when a call needs it and given back when that
    call returns. A loop whose calls begin just where a piece ends pays for both at each: 6 us instead of 0.05, half the
    time of a long program. A frame of more than half a MiB gets a piece of one MiB, of which the rest is for the calls.
    """
    return cast("Result", _ROOMY(call))


_ROOMY = FunctionType(_call.__code__.replace(co_stacksize=1 << 16), globals())


def _of_c(name: str) -> Callable[..., int] | None:
    """A function of the C library; None where it has none."""
    try:
        return getattr(ctypes.CDLL(None), name, None)
    except (OSError, TypeError):  # Windows has no library of that kind
        return None


@contextmanager
def collected_rarely() -> Iterator[None]:
    """Looks for garbage less often while inside; where the collector is off it stays off.

    A recording and its graph are hundreds of thousands of small objects that stay. At Python's usual threshold (a look
    for every 700 new objects) the collector goes through them again and again, which takes as long as making them.
    """
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
