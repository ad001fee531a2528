"""Compiles functions with Numba and keeps the machine code on disk, apart for every version of the simulator.

Numba alone looks at the file of a function, not at the files of what it calls: after an upgrade it would go on using
old code. So the folder is named by the sources of the whole simulator. Loading machine code runs it, so only a folder
that is ours alone is used; without one the simulator is compiled every time.

Compiling takes some 15 s, and nobody waits for it: on a machine that has no machine code yet the functions run as the
plain Python they are written in, with the same results, while a process in the background compiles. As soon as it is
done they are changed for compiled ones (`switch`).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from hashlib import sha256
from multiprocessing import parent_process
from pathlib import Path
from typing import Any, TypeVar, cast

from npuscope.base import progress
from npuscope.base.files import first_private, user_caches

F = TypeVar("F", bound=Callable[..., object])
ENGINE = "NPUSCOPE_ENGINE"  # compiled: wait for the compiler; plain: never compile
NEEDED = ("engine.run-*.nbi", "pipes._run-*.nbi")  # what is compiled last, of the chip and of a core
LOOK_EVERY = 0.5  # seconds
LONGEST = 120.0  # seconds to wait for a compiler; then something is wrong with it
COMPILE = "import sys; sys.path[:] = {path!r}; from npuscope.time.warm_up import compile_now; compile_now()"
_plain: list[tuple[Callable[..., object], dict[str, bool]]] = []  # functions that still run as they are written


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
    if _starts_plain():
        _plain.append((function, options))
        return function
    return _made(function, options)


def _made(function: F, options: dict[str, bool]) -> F:
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
    return first_private((here / "__pycache__" / name, user_caches() / "npuscope" / name))


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


def _is_whole() -> bool:
    place = folder()
    return place is not None and all(any(place.rglob(name)) for name in NEEDED)


@cache
def _starts_plain() -> bool:
    """Whether this process begins without machine code: Numba loads with the first simulation, not before.

    Where none can be kept it is compiled, as every time.
    """
    choice = os.environ.get(ENGINE, "")
    return choice == "plain" or (choice != "compiled" and folder() is not None)


class _Looked:
    """When it was last looked whether the compiler is done."""

    at = 0.0


def switch() -> bool:
    """Takes compiled functions in place of plain ones where they are there now; whether it did."""
    if not _plain or time.monotonic() - _Looked.at < LOOK_EVERY or os.environ.get(ENGINE) == "plain":
        return False
    _Looked.at = time.monotonic()
    if not _is_whole():
        return False
    made = {id(function): _made(function, options) for function, options in _plain}
    for module in [module for name, module in sys.modules.items() if name.startswith("npuscope.time")]:
        for name, value in list(vars(module).items()):
            if id(value) in made:
                setattr(module, name, made[id(value)])
    _plain.clear()
    return True


def wait() -> None:
    """Until the compiler is done, where it is at work: a run is large, and plain Python would take longer."""
    if not _plain or os.environ.get(ENGINE) == "plain":
        return
    _compile_in_background()
    what = "compiling the simulator (once per machine)"
    progress.report(what, 0, 0)
    until = time.monotonic() + LONGEST
    while not switch() and time.monotonic() < until:
        time.sleep(LOOK_EVERY / 2)
    progress.report(what, 1, 1)


@cache
def _compile_in_background() -> None:
    """Of all processes on this machine one at a time: who finds another at it neither starts a compiler nor says so.

    The compiler inherits the lock, and keeps it until it ends.
    """
    place = folder()
    assert place is not None  # without one nothing starts plain
    with contextlib.suppress(OSError, ImportError), (place / "compiling").open("w") as lock:
        import fcntl  # not on Windows, where the simulator stays plain unless NPUSCOPE_ENGINE says otherwise

        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if parent_process() is None:
            what = "the simulator is compiled in the background, once per machine; until then it runs in plain Python"
            print(f"npuscope: {what}, with the same results.", file=sys.stderr)
        subprocess.Popen(
            [sys.executable, "-c", COMPILE.format(path=sys.path)],
            env={**os.environ, ENGINE: "compiled"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=(lock.fileno(),),
        )


@contextmanager
def announced(function: Callable[..., object]) -> Iterator[None]:
    """Says so where the block will have to compile a function first, which takes many seconds."""
    if _plain:
        if not switch() and os.environ.get(ENGINE) != "plain":
            _compile_in_background()
        yield
        return
    if is_kept(function):
        yield
        return
    if folder() is None:
        _tell("no folder is there for the compiled simulator that only we can write to")
    what = "compiling the simulator (once per machine)"
    progress.report(what, 0, 0)
    yield
    progress.report(what, 1, 1)
