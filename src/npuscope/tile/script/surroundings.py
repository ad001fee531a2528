"""What a script takes from around it while it runs: modules of the user's own, and environment variables.

Who keeps a result asks later whether these are still what they were. Not seen: other files that a script reads.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from npuscope.tile.record import sites

EVERY = "*"  # as a variable: the script looked through all of them


@dataclass(frozen=True)
class Surroundings:
    """Names only: `fingerprint` tells what they hold now. Modules are files, as seen from the script's folder."""

    modules: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def fingerprint(self, folder: Path) -> str:
        """Equal as long as every module and variable holds what it held."""
        told = hashlib.sha256()
        for name in self.modules:
            file = folder / name
            told.update(f"{name}\0".encode() + (file.read_bytes() if file.is_file() else b"") + b"\0")
        every = sorted(os.environ.items()) if EVERY in self.variables else ()
        told.update(repr(([(name, os.environ.get(name)) for name in self.variables], every)).encode())
        return told.hexdigest()


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
    with _variables() as asked, _found_modules() as files:
        try:
            yield asked
        finally:
            files |= set(own_modules(before).values())  # also those that somebody else's finder found
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


def own_modules(before: set[str]) -> dict[str, str]:
    """Modules of the user's own that came since, with their file; their folder where they have no file."""
    places = {
        name: str(getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), ""))
        for name, module in list(sys.modules.items())
        if name not in before
    }
    return {name: place for name, place in places.items() if sites.is_users(place)}
