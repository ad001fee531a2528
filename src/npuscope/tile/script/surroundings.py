"""Watches what a script takes from around it while it runs: modules of the user's own, files, environment variables."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from npuscope.base.own_folder import user_caches
from npuscope.base.surroundings import EVERY, Surroundings
from npuscope.tile.record import sites

_heard: ContextVar[list[Surroundings] | None] = ContextVar("npuscope_surroundings", default=None)


@contextmanager
def heard() -> Iterator[list[Surroundings]]:
    """What scripts that run inside the block take from around them, one entry each, also where one fails."""
    found: list[Surroundings] = []
    token = _heard.set(found)
    try:
        yield found
    finally:
        _heard.reset(token)


@contextmanager
def watched(folder: Path) -> Iterator[set[str]]:
    """Watches a script of this folder; gives the variables that it has asked for so far."""
    before = set(sys.modules)
    with _variables() as asked, _found_modules() as files, _opened() as read:
        try:
            yield asked
        finally:
            files |= set(own_modules(before).values())  # also those that somebody else's finder found
            files |= {file for file in read if not file.startswith(_SYSTEM) and not file.endswith(".pyc")}
            own = {os.path.relpath(file, folder) for file in files if sites.is_users(file) and Path(file).is_file()}
            heard_by = _heard.get()
            if heard_by is not None:
                heard_by.append(Surroundings(tuple(sorted(own)), tuple(sorted(asked))))


@contextmanager
def _variables() -> Iterator[set[str]]:
    """The names that anybody asks the environment for, however: everything it offers goes through these two."""
    kind: Any = type(os.environ)
    ask, walk = kind.__getitem__, kind.__iter__
    asked: set[str] = set()

    def asked_for(environment: object, name: object) -> object:
        asked.add(str(name))
        return ask(environment, name)

    def walked(environment: object) -> object:
        asked.add(EVERY)
        return walk(environment)

    kind.__getitem__, kind.__iter__ = asked_for, walked
    try:
        yield asked
    finally:
        kind.__getitem__, kind.__iter__ = ask, walk


@contextmanager
def _found_modules() -> Iterator[set[str]]:
    """The files of modules as they are found: one that fails while it is imported leaves no other trace."""
    files: set[str] = set()

    class Noting(PathFinder):
        @classmethod
        def find_spec(
            cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
        ) -> ModuleSpec | None:
            spec = PathFinder.find_spec(fullname, path, target)
            files.update([spec.origin] if spec is not None and spec.origin else [])
            return spec

    usual = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else len(sys.meta_path)
    sys.meta_path.insert(usual, Noting)
    try:
        yield files
    finally:
        sys.meta_path.remove(Noting)


_opened_now: ContextVar[set[str] | None] = ContextVar("npuscope_opened", default=None)
_SYSTEM = ("/proc/", "/sys/", "/dev/", str(user_caches() / "npuscope") + os.sep)  # and what we keep ourselves


def _hear(event: str, details: tuple[Any, ...]) -> None:
    """Python tells of every file that is opened; those that are only written decide nothing."""
    if event != "open" or (files := _opened_now.get()) is None:
        return
    file, mode, flags = details
    if isinstance(file, str) and not (flags & os.O_WRONLY) and (mode is None or "r" in mode):
        files.add(os.path.abspath(file))


@cache
def _listen() -> None:
    """Once for the process: such a hook cannot be taken out again."""
    sys.addaudithook(_hear)


@contextmanager
def _opened() -> Iterator[set[str]]:
    """Files that are opened to be read, by whatever."""
    _listen()
    files: set[str] = set()
    token = _opened_now.set(files)
    try:
        yield files
    finally:
        _opened_now.reset(token)


def own_modules(before: set[str]) -> dict[str, str]:
    """Modules of the user's own that came since, with their file; their folder where they have no file."""
    places = {
        name: str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), ""))
        for name, module in list(sys.modules.items())
        if name not in before
    }
    return {name: place for name, place in places.items() if sites.is_users(place)}
