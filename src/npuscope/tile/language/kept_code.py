"""Rewritten functions kept between runs, by their source: rewriting takes half as long as recording.

A rewrite follows from the text of a function, its place, the names of its closure, and whether some names mean the
language itself (`pl`): those are kept beside the code and asked again. Code that is loaded runs, so only a folder that
is ours alone is used, one for each version of npuscope and of Python.
"""

from __future__ import annotations

import contextlib
import marshal
import os
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from npuscope.own_folder import first_own, user_caches

MOST = 4000  # files; the oldest half goes
OFF = "NPUSCOPE_NO_REWRITE_CACHE"


class KeptCode(NamedTuple):
    """`inner`: the code of the function; `reads` and `rebound` as in `Rewritten`, places by their lines."""

    inner: CodeType
    reads: tuple[str, ...] | None
    rebound: dict[str, int]


def _folder() -> Path | None:
    if os.environ.get(OFF):
        return None
    own = Path(__file__).parent
    told = sha256(sys.version.encode())
    for file in sorted(own.glob("*.py")):
        told.update(file.read_bytes())
    return first_own([user_caches() / "npuscope" / f"rewritten-{told.hexdigest()[:16]}"])


_FOLDER = _folder()  # now, and not while a script is watched for what it takes from around it


class Kept:
    """The place of one function; `means` says whether a name means the language."""

    def __init__(self, key: object, means: Callable[[str], bool]) -> None:
        self._file = None if _FOLDER is None else _FOLDER / sha256(repr(key).encode()).hexdigest()[:40]
        self._means = means
        self._asked: dict[str, bool] = {}

    def means(self, name: str) -> bool:
        """Asked while rewriting; what was answered decides whether the result holds the next time."""
        return self._asked.setdefault(name, self._means(name))

    def found(self) -> KeptCode | None:
        if self._file is None:
            return None
        try:
            asked, inner, reads, rebound = marshal.loads(self._file.read_bytes())
        except (OSError, ValueError, EOFError, TypeError):  # none, or half of one
            return None
        if any(self._means(name) != answer for name, answer in asked.items()):
            return None
        return KeptCode(inner, reads, rebound)

    def keep(self, code: KeptCode) -> None:
        """A full disk keeps nothing, and stops nobody."""
        if self._file is None:
            return
        with contextlib.suppress(OSError, ValueError):
            part = self._file.with_suffix(f".{os.getpid()}")
            part.write_bytes(marshal.dumps((self._asked, *code)))
            part.replace(self._file)
            _prune(self._file.parent)


def _prune(place: Path) -> None:
    files = list(place.iterdir())
    if len(files) > MOST:
        for old in sorted(files, key=lambda file: file.stat().st_mtime)[: MOST // 2]:
            old.unlink(missing_ok=True)
