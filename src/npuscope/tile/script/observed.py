"""Which fields of a program's configurations a run reads: the others are not worth turning.

An object made from another by `dataclasses.replace` counts as that one for the fields that it took over. What a class
reads of itself while it is made (`__post_init__`) does not count: it checks all fields, used or not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from types import FrameType
from typing import Any

from npuscope.tile.script.places import Place

MAKING = frozenset({"__post_init__", "__init__", "__repr__", "__eq__", "__hash__", "_check"})
COPYING = frozenset({"replace", "_replace", "__replace__"})
DEEP = 6


@dataclass(frozen=True)
class _Origin:
    """Where an object comes from: the name at the top of a file, the fields below it; `own` those that are its."""

    file: str
    target: str
    path: tuple[str, ...]
    own: frozenset[str]


@dataclass
class Reads:
    """What was read, as (file, name at the top, fields), and the objects as they were made."""

    seen: set[tuple[str, str, tuple[str, ...]]] = field(default_factory=set)
    objects: dict[tuple[str, str], object] = field(default_factory=dict)
    _origins: dict[int, _Origin] = field(default_factory=dict)
    _kept: list[object] = field(default_factory=list)  # a freed object's id would be given to another
    _classes: dict[type, tuple[Any, Any]] = field(default_factory=dict)
    _copies: dict[int, tuple[FrameType, _Origin, set[str]]] = field(default_factory=dict)

    def note(self, file: str, target: str, value: object) -> object:
        """An object at the top of a file, watched from now on."""
        if _is_object(value):
            self.objects[file, target] = value
            self._watch(value, _Origin(file, target, (), _names(value)))
        return value

    def _watch(self, value: Any, origin: _Origin) -> None:
        if id(value) in self._origins or len(origin.path) > DEEP:
            return
        self._origins[id(value)] = origin
        self._kept.append(value)
        self._open(type(value))
        for name in origin.own:
            part = object.__getattribute__(value, name)
            if _is_object(part):
                self._watch(part, _Origin(origin.file, origin.target, (*origin.path, name), _names(part)))

    def _open(self, cls: Any) -> None:
        if cls in self._classes:
            return
        read, make = cls.__getattribute__, cls.__init__
        self._classes[cls] = cls.__dict__.get("__getattribute__"), cls.__dict__.get("__init__")

        def reading(value: object, name: str) -> object:
            origin = self._origins.get(id(value))
            if origin is not None and name in origin.own:
                self._read(origin, name, sys._getframe(1))
            return read(value, name)

        def making(value: object, *args: object, **named: object) -> None:
            make(value, *args, **named)
            copied = self._copies.pop(id(sys._getframe(1)), None)
            if copied is not None and copied[0] is sys._getframe(1):
                origin = copied[1]
                self._watch(value, _Origin(origin.file, origin.target, origin.path, frozenset(copied[2])))

        cls.__getattribute__, cls.__init__ = reading, making

    def _read(self, origin: _Origin, name: str, frame: FrameType) -> None:
        code = frame.f_code
        if code.co_name in COPYING and code.co_filename.endswith("dataclasses.py"):
            known = self._copies.get(id(frame))
            if known is None or known[0] is not frame:
                known = self._copies[id(frame)] = frame, origin, set()
            known[2].add(name)
        elif code.co_name not in MAKING:
            self.seen.add((origin.file, origin.target, (*origin.path, name)))

    def close(self) -> None:
        """Leaves the classes as they were."""
        for cls, (read, make) in self._classes.items():
            for name, before in (("__getattribute__", read), ("__init__", make)):
                if before is None:
                    delattr(cls, name)
                else:
                    setattr(cls, name, before)
        self._classes.clear()
        self._copies.clear()


def decides(default: Place, field: Place) -> bool:
    """Whether a class's default is what a field of an object has."""
    return (
        default.kind == "default"
        and field.kind == "field"
        and field.taken
        and field.path[-1] == default.target
        and field.value == default.value
        and default.taken
    )


def is_read(place: Place, places: Iterable[Place], seen: Reads) -> bool:
    """Whether a run read a field, or of a default a field that has it; of what cannot be watched it is taken to be."""
    if place.kind == "field":
        return (place.file, place.target, place.path) in seen.seen
    takers = [other for other in places if decides(place, other)]
    return not takers or any(is_read(other, (), seen) for other in takers)


def _is_object(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type) and not hasattr(type(value), "__slots__")


def _names(value: Any) -> frozenset[str]:
    return frozenset(one.name for one in fields(value))


_reads: ContextVar[Reads | None] = ContextVar("npuscope_reads", default=None)


@contextmanager
def reads() -> Iterator[Reads]:
    """What scripts that run inside the block read of their configurations."""
    found = Reads()
    token = _reads.set(found)
    try:
        yield found
    finally:
        _reads.reset(token)
        found.close()


def current_reads() -> Reads | None:
    """The block's, where a script runs inside one."""
    return _reads.get()
