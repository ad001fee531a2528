"""Which fields of a program's configurations a run reads: the others are not worth turning.

A configuration that is watched gets a class derived from its own, which notes what is read; the user's classes stay as
they are. An object made from another by `dataclasses.replace` counts as that one for the fields that it took over. What
a class reads of itself while it is made (`__post_init__`) does not count: it checks all fields, used or not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from npuscope.tile.script.places import SettingPlace

MAKING = frozenset({"__post_init__", "__init__", "__repr__", "__eq__", "__hash__", "_check"})
COPYING = frozenset({"replace", "_replace", "__replace__"})
DEEP = 6


@dataclass(frozen=True)
class _Origin:
    """Where an object comes from: the name at the top of a file, the fields below it; `fields` those that count."""

    file: str
    target: str
    path: tuple[str, ...]
    fields: frozenset[str]


@dataclass
class Reads:
    """What was read, as (file, name at the top, fields), and the objects as they were made."""

    seen: set[tuple[str, str, tuple[str, ...]]] = field(default_factory=set)
    objects: dict[tuple[str, str], object] = field(default_factory=dict)
    _watched: dict[int, tuple[Any, _Origin]] = field(default_factory=dict)  # by id, with the object so that it lives
    _classes: dict[type, type] = field(default_factory=dict)

    def note(self, file: str, target: str, value: object) -> object:
        """An object at the top of a file, watched from now on."""
        if _is_configuration(value):
            self.objects[file, target] = value
            self._watch(value, _Origin(file, target, (), _names(value)))
        return value

    def _watch(self, value: Any, origin: _Origin) -> None:
        if id(value) in self._watched or len(origin.path) > DEEP:
            return
        self._watched[id(value)] = value, origin
        for name in origin.fields:
            part = getattr(value, name)
            if _is_configuration(part):
                self._watch(part, _Origin(origin.file, origin.target, (*origin.path, name), _names(part)))
        cls = type(value)
        try:
            if cls not in self._classes:
                self._classes[cls] = self._watching(cls)
            object.__setattr__(value, "__class__", self._classes[cls])
        except TypeError:  # a class that cannot be derived from
            del self._watched[id(value)]

    def _watching(self, cls: Any) -> type:
        """A class that does what another does, and notes what is read of its objects."""

        def read(value: object, name: str) -> object:
            _, origin = self._watched.get(id(value), (None, None))
            caller = sys._getframe(1).f_code
            copying = caller.co_name in COPYING and caller.co_filename.endswith("dataclasses.py")
            if name == "__class__":
                return self._copier(value, cls, origin) if copying and origin else cls
            if origin and name in origin.fields and not copying and caller.co_name not in MAKING:
                self.seen.add((origin.file, origin.target, (*origin.path, name)))
            return cls.__getattribute__(value, name)

        return type(cls.__name__, (cls,), {"__slots__": (), "__module__": cls.__module__, "__getattribute__": read})

    def _copier(self, value: object, cls: Callable[..., object], origin: _Origin) -> Callable[..., object]:
        """What `dataclasses.replace` calls for a new object: it is watched for the fields that it took over."""

        def copy(**given: object) -> object:
            made = cls(**given)
            same = {name for name in origin.fields if given.get(name) is object.__getattribute__(value, name)}
            self._watch(made, _Origin(origin.file, origin.target, origin.path, frozenset(same)))
            return made

        return copy

    def close(self) -> None:
        """Gives the objects their own classes back."""
        for value, _ in self._watched.values():
            object.__setattr__(value, "__class__", type(value).__base__)
        self._watched.clear()


def decides(default: SettingPlace, field: SettingPlace) -> bool:
    """Whether a class's default is what a field of an object has."""
    return (
        default.kind == "default"
        and field.kind == "field"
        and field.taken
        and field.path[-1] == default.target
        and field.value == default.value
        and default.taken
    )


def is_read(place: SettingPlace, places: Iterable[SettingPlace], seen: Reads) -> bool:
    """Whether a run read a field, or of a default a field that has it; of what cannot be watched it is taken to be."""
    if place.kind == "field":
        return (place.file, place.target, place.path) in seen.seen
    takers = [other for other in places if decides(place, other)]
    return not takers or any(is_read(other, (), seen) for other in takers)


def _is_configuration(value: object) -> bool:
    return is_dataclass(value) and not isinstance(value, type)


def _names(value: Any) -> frozenset[str]:
    return frozenset(one.name for one in fields(value))


_reads: ContextVar[Reads | None] = ContextVar("npuscope_reads", default=None)


@contextmanager
def reads() -> Iterator[Reads]:
    """What scripts that run inside the block read of their configurations."""
    noted = Reads()
    token = _reads.set(noted)
    try:
        yield noted
    finally:
        _reads.reset(token)
        noted.close()


def current_reads() -> Reads | None:
    """The block's, where a script runs inside one."""
    return _reads.get()
