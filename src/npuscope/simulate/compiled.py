"""Compiles functions with Numba and keeps the machine code on disk, apart for every version of the simulator.

Numba alone looks at the file of a function, not at the files of what it calls: after an upgrade it would go on using
old code. So the folder is named by the sources of the whole simulator. Loading machine code runs it, so only a folder
that is ours alone is used; without one the simulator is compiled every time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from hashlib import sha256
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, TypeVar, cast

from npuscope import progress
from npuscope.own_folder import first_own, user_caches

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

    compile_it = cast(Any, numba.njit)
    place = folder()
    if place is None:
        return cast(F, compile_it(**options)(function))
    config = cast(Any, numba.config)  # read where a function is decorated; other users' stay as they were
    before, config.CACHE_DIR = config.CACHE_DIR, str(place)
    try:
        made = compile_it(cache=True, **options)(function)
    finally:
        config.CACHE_DIR = before
    made._cache.save_overload = _if_there_is_room(made._cache.save_overload)
    return cast(F, made)


def _if_there_is_room(save: Callable[..., None]) -> Callable[..., None]:
    """A full disk keeps nothing, and stops nobody from simulating."""

    @wraps(save)
    def tried(*arguments: object) -> None:
        try:
            save(*arguments)
        except OSError as error:
            _tell(f"the compiled simulator cannot be kept ({error.strerror or error})")

    return tried


@cache
def folder() -> Path | None:
    """Where the machine code lies: beside the package, else with the user's caches; None where neither is ours."""
    here = Path(__file__).parent
    sources = sha256()
    for file in sorted(here.rglob("*.py")):
        sources.update(file.read_bytes())
    name = f"compiled-{sources.hexdigest()[:16]}"
    return first_own((here / "__pycache__" / name, user_caches() / "npuscope" / name))


def is_kept(function: Callable[..., object]) -> bool:
    """Whether a compiled function's machine code is on disk."""
    place = folder()
    name = f"{Path(function.__code__.co_filename).stem}.{function.__qualname__}-*.nbi"
    return place is not None and any(place.rglob(name))


@cache
def _tell(what: str) -> None:
    """Once, and not by every process of a sweep."""
    if parent_process() is None:
        remedy = "Set XDG_CACHE_HOME to a folder that is yours alone."
        print(f"npuscope: {what}, so it is compiled every time. {remedy}", file=sys.stderr)


@contextmanager
def announced(function: Callable[..., object]) -> Iterator[None]:
    """Says so where the block will have to compile a function first, which takes many seconds."""
    if is_kept(function):
        yield
        return
    if folder() is None:
        _tell("no folder is there for the compiled simulator that only we can write to")
    what = "compiling the simulator (once per machine)"
    progress.report(what, 0, 0)
    yield
    progress.report(what, 1, 1)
