"""Mistakes in a tile program: one sentence with the user's file and line."""

from __future__ import annotations

from npuscope.base.errors import NpuscopeError
from npuscope.tile.record import sites


class TileError(NpuscopeError):
    """The program does what the language or the chip does not allow."""


class Unsupported(TileError, AttributeError):
    """A name of the language that npuscope does not have."""


class NeedsValues(TileError):
    """What the program does next depends on a value that `shapes` mode does not compute.

    origins  tensors and tasks that the value came from.
    slice    what would have to be computed to know it, once a run has said so (run/memory.py).
    """

    origins: frozenset[object] = frozenset()
    slice: object = None


def fault(what: str, remedy: str = "") -> TileError:
    """The error for the op that the user's code just called."""
    place = sites.site(sites.here())
    return TileError(what, path=place.file, line=place.line, remedy=remedy)
