"""Python of the host between the calls of devices: which a worker binds to the names of a program's sub workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

Callback = Callable[[list[object]], object]


class _Callbacks:
    by_name: Mapping[str, Callback] = {}


@contextmanager
def binding(callbacks: Mapping[str, Callback]) -> Iterator[None]:
    """Inside, sub workers of these names do this."""
    before, _Callbacks.by_name = _Callbacks.by_name, {**_Callbacks.by_name, **callbacks}
    try:
        yield
    finally:
        _Callbacks.by_name = before


def callback(name: str) -> Callback | None:
    return _Callbacks.by_name.get(name)


def check(callbacks: Mapping[str, Callback], known: Mapping[str, bool]) -> None:
    """Whether these can be bound; of each sub worker is known whether it must be."""
    if strangers := sorted(set(callbacks) - set(known)):
        raise ValueError(f"callbacks {strangers} are not sub-workers of the program, which has {sorted(known)}")
    if missing := sorted(name for name, needed in known.items() if needed and name not in callbacks):
        raise ValueError(f"the sub-workers {missing} have no body: bind them, prepare(callbacks={{name: function}})")
