"""How long work tells a listener how far it is, without knowing who listens.

Readers and writers call `report`; the command line listens and draws a bar. Nobody listening costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Listener = Callable[[str, int, int], None]  # what is being done, how much is done, of how much

_listener: ContextVar[Listener | None] = ContextVar("npuscope_progress", default=None)


def report(what: str, done: int, total: int) -> None:
    """Say that `done` of `total` units (bytes, files, slices; 0: nobody knows) of `what` are done."""
    listener = _listener.get()
    if listener is not None:
        listener(what, done, total)


@contextmanager
def listen(listener: Listener) -> Iterator[None]:
    """Hear every `report` made inside the block."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
