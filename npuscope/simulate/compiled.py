"""Compiles functions with Numba and keeps the machine code on disk, apart for every version of the simulator.

Numba alone looks at the file of a function, not at the files of what it calls: after an upgrade it would go on using
old code. So the folder is named by the sources of the whole simulator.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from os import W_OK, access, environ, getuid
from pathlib import Path
from typing import Any, TypeVar, cast

from npuscope import progress

F = TypeVar("F", bound=Callable[..., object])


def compiled(function: F) -> F:
    """The function in machine code, compiled at its first use on this machine. It must not make arrays.

    Numba counts references to an array whenever it is taken out of a tuple, which took five sixths of the simulator's
    time; without its runtime (`_nrt`) it neither counts nor makes arrays.
    """
    return _compiled(function, forceinline=True, _nrt=False)


def compiled_part(function: F) -> F:
    """As `compiled`, for a function that only compiled ones call: compiling is quicker without a way in from Python."""
    return _compiled(function, forceinline=True, _nrt=False, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def compiled_with_arrays(function: F) -> F:
    """As `compiled`, for a function that makes arrays of its own."""
    return _compiled(function)


def _compiled(function: F, **options: bool) -> F:
    import numba

    config = cast(Any, numba.config)  # read where a function is decorated; other users' stay as they were
    before, config.CACHE_DIR = config.CACHE_DIR, str(folder())
    try:
        return cast(F, cast(Any, numba.njit)(cache=True, **options)(function))
    finally:
        config.CACHE_DIR = before


@cache
def folder() -> Path:
    """Where the machine code lies: beside the package where that can be written, else with the user's caches."""
    here = Path(__file__).parent
    sources = sha256()
    for file in sorted(here.rglob("*.py")):
        sources.update(file.read_bytes())
    name = f"compiled-{sources.hexdigest()[:16]}"
    beside = here / "__pycache__"
    if access(beside if beside.exists() else here, W_OK):
        return beside / name
    home = environ.get("XDG_CACHE_HOME") or environ.get("HOME")
    root = Path(home) if home else Path(tempfile.gettempdir()) / f"npuscope-{getuid()}"
    return (root if environ.get("XDG_CACHE_HOME") or not home else root / ".cache") / "npuscope" / name


def is_kept(function: Callable[..., object]) -> bool:
    """Whether a compiled function's machine code is on disk."""
    name = f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}-*.nbi"
    return any(folder().rglob(name))


@contextmanager
def announced(function: Callable[..., object]) -> Iterator[None]:
    """Says so where the block will have to compile a function first, which takes many seconds."""
    if is_kept(function):
        yield
        return
    what = "compiling the simulator (once per machine)"
    progress.report(what, 0, 0)
    yield
    progress.report(what, 1, 1)
