"""Python's own complaints about a tile program, said as mistakes in the user's source.

An op called with an argument it has not, a name that this block or branch never bound, two values for three names:
Python notices these in the user's line, so the line is known and one sentence is enough.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from npuscope.tile.fault import TileError
from npuscope.tile.record import sites

_MISTAKES = (TypeError, NameError, ValueError, ZeroDivisionError, OverflowError)


def _is_library(file: str) -> bool:
    return sites.is_ours(file) or file.startswith(sites.LIBRARY)


@contextmanager
def explained() -> Iterator[None]:
    """Turns an error that Python raised in the user's own line into a TileError; npuscope's own faults pass."""
    try:
        yield
    except MemoryError as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not _is_library(f.filename)]
        what, remedy = "this machine has not the memory for it", "Record it in shapes mode, or make it smaller."
        raise TileError(what, path=frames[-1].filename, line=frames[-1].lineno, remedy=remedy) from error
    except _MISTAKES as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(sites.LIBRARY)]
        if not frames or sites.is_ours(frames[-1].filename):
            raise
        frame = frames[-1]
        what, remedy = str(error), ""
        if isinstance(error, NameError):
            named = re.search("'([^']+)'", what)
            what = f"the name {named.group(1) if named else '?'} is not bound here"
            remedy = "A block sees the names bound before its task, not another block's; a branch not taken binds none."
        raise TileError(what, path=frame.filename, line=frame.lineno, remedy=remedy) from error
