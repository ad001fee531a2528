"""Compiles a function with Numba, kept on disk; imported only when something is simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

from npuscope import progress

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function in machine code, compiled at its first use on this machine."""
    import numba

    return cast(F, numba.njit(cache=True)(function))


def is_kept(function: Callable[..., Any]) -> bool:
    """Whether a compiled function's machine code is on disk, made from its present source."""
    source = Path(function.__code__.co_filename)
    kept = Path(cast(Any, function).stats.cache_path).glob(f"{source.stem}.{function.__qualname__}-*.nbi")
    return any(file.stat().st_mtime >= source.stat().st_mtime for file in kept)


@contextmanager
def announced(function: Callable[..., Any]) -> Iterator[None]:
    """Says so where the block will have to compile a function first, which takes many seconds."""
    if is_kept(function):
        yield
        return
    what = "compiling the simulator (once per machine)"
    progress.report(what, 0, 0)
    yield
    progress.report(what, 1, 1)
