"""A file for one process at a time, on every system. The lock goes with the process, however that ends."""

from __future__ import annotations

import sys
from typing import IO, Any

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

_FAR = 1 << 40  # Windows locks bytes, which nobody else can then read: one far behind the end of every file


def take(file: IO[Any]) -> bool:
    """Takes an open file for this process; False where another has it."""
    try:
        if sys.platform == "win32":
            was = file.tell()
            file.seek(_FAR)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            file.seek(was)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # as POSIX says it, and as Windows does
        return False
    return True
