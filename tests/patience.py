"""Waiting for what another process does: only a test that fails waits to the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

MOST = 120  # seconds, which nothing takes, on a busy machine either: so that what hangs fails and says so


def becomes(true: Callable[[], bool]) -> bool:
    """Whether something comes true."""
    until = time.monotonic() + MOST
    while not true() and time.monotonic() < until:
        time.sleep(0.01)
    return true()


def is_alive(process: int) -> bool:
    """A process that has ended and waits to be collected is not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
