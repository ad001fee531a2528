"""What jobs do in tests of the pool: the good, and everything a program under test may do wrong."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def double(number: int) -> int:
    return 2 * number


def where(_: None) -> tuple[str, str | None]:
    return os.getcwd(), os.environ.get("POOL_SAYS")


def shout(number: int) -> int:
    """Prints rubbish on every stream, and writes to every descriptor but that of its answer."""
    print("x" * 100_000)
    print("y" * 100_000, file=sys.stderr)
    os.write(1, b"\0" * 100_000)
    return number


def loop(_: object) -> None:
    while True:
        pass


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def touch_and_sleep(path: str) -> None:
    Path(path).write_text(str(os.getpid()))
    time.sleep(600)


def hog(_: object) -> None:
    held = []
    while True:
        held.append(bytearray(b"x") * 20_000_000)


def one_huge(_: object) -> None:
    bytearray(10**13)


def crash(_: object) -> None:
    ctypes.string_at(0)


def leave(code: int) -> None:
    os._exit(code)


def leave_politely(code: int) -> None:
    sys.exit(code)


def fail(what: str) -> None:
    raise ValueError(what)


def refuse(what: str) -> None:
    from npuscope.base.errors import NpuscopeError

    raise NpuscopeError(what, remedy="Mend it.")


def unpicklable(_: object) -> object:
    return lambda: None


def fork_and_return(number: int) -> int:
    os.fork()
    return number


def leave_a_child(path: str) -> int:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(path).write_text(str(child.pid))
    return child.pid


def big(size: int) -> bytes:
    return b"z" * size


def by_group(seed: int) -> int:
    """Polars with all its threads, as analyses use it."""
    import polars as pl

    frame = pl.DataFrame({"a": [(n * seed) % 7 for n in range(5000)], "b": range(5000)})
    return int(frame.lazy().group_by("a").agg(pl.col("b").sum()).sort("a").collect()["b"].sum())


def is_loaded(module: str) -> bool:
    return module in sys.modules


def server(_: object) -> int:
    return os.getppid()


def leave_folders(code: int | None) -> None:
    """Makes temporary folders and files, and leaves at once, or ends its process or the one that started it."""
    tempfile.mkdtemp()
    tempfile.mkstemp()
    if code is None:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(600)
    os._exit(code or 0)
