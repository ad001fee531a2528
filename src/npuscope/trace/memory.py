"""Giving freed memory back to the system.

The C library keeps the holes that a reader's temporary arrays leave: after reading 2.16 M events, 98 of 433 MB.
Where it has no call to ask for them back nothing happens.
"""

from __future__ import annotations

import ctypes


def give_back() -> None:
    """Return free memory to the system, where the C library can."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError):
        return
    trim(0)
