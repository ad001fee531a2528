"""Rewritten functions kept between runs, by their source: rewriting takes half as long as recording.

A rewrite follows from the text of a function, its place, the names of its closure, and whether some names mean the
language itself (`pl`): those are kept beside the code and asked again.
"""

from __future__ import annotations

import contextlib
import marshal
import sys
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from npuscope.base.kept_files import KeptFiles

_FILES = KeptFiles("rewritten", 64 << 20)
_VERSION = sha256(
    sys.version.encode() + b"".join(file.read_bytes() for file in sorted(Path(__file__).parent.glob("*.py")))
)


class KeptCode(NamedTuple):
    """`inner`: the code of the function; `reads` and `rebound` as in `Rewritten`, places by their lines."""

    inner: CodeType
    reads: tuple[str, ...] | None
    rebound: dict[str, int]


class Kept:
    """The place of one function; `means` says whether a name means the language."""

    def __init__(self, key: object, means: Callable[[str], bool]) -> None:
        hashed = _VERSION.copy()
        hashed.update(repr(key).encode())
        self._key = hashed.hexdigest()
        self._means = means
        self._asked: dict[str, bool] = {}

    def means(self, name: str) -> bool:
        """Asked while rewriting; what was answered decides whether the result holds the next time."""
        return self._asked.setdefault(name, self._means(name))

    def found(self) -> KeptCode | None:
        data = _FILES.read(self._key)
        if data is None:
            return None
        try:
            asked, inner, reads, rebound = marshal.loads(data)
        except (ValueError, EOFError, TypeError):  # half of one
            return None
        if any(self._means(name) != answer for name, answer in asked.items()):
            return None
        return KeptCode(inner, reads, rebound)

    def keep(self, code: KeptCode) -> None:
        with contextlib.suppress(ValueError):  # a constant that cannot be written down
            _FILES.write(self._key, marshal.dumps((self._asked, *code)))
