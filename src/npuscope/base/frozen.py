"""Frozen dataclasses that load quickly.

Python writes and compiles six functions for each: 0.3 ms, and a command loads a hundred classes, a twentieth of what a
report takes. Here they share functions that go over the fields: 0.03 ms, and making an instance takes as long. For
classes with few instances, because each instance has a dict of its own; with slots, or not frozen, they are Python's.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, frozen: bool = False, **how: bool) -> Any:
        """As `dataclasses.dataclass`."""
        if not frozen or how.get("slots"):
            return dataclasses.dataclass(cls, frozen=frozen, **how)
        return partial(_with_methods, **how)


class _Signature:
    """Of a class, made when somebody asks for it."""

    def __get__(self, instance: object, owner: Any) -> Any:
        from inspect import Parameter, Signature

        parameters = []
        for one in dataclasses.fields(owner):
            made = one.default if one.default_factory is dataclasses.MISSING else one.default_factory
            default = Parameter.empty if made is dataclasses.MISSING else made
            kind = Parameter.KEYWORD_ONLY if one.kw_only else Parameter.POSITIONAL_OR_KEYWORD
            parameters.append(Parameter(one.name, kind, default=default, annotation=one.type))
        return Signature(sorted(parameters, key=lambda one: one.kind), return_annotation=None)


def _with_methods(cls: Any, eq: bool = True, repr: bool = True) -> Any:
    if any(map(dataclasses.is_dataclass, cls.__bases__)):  # few are, and Python's may be their bases
        return dataclasses.dataclass(frozen=True, eq=eq, repr=repr)(cls)
    own = set(vars(cls))
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the signature is made for it
    dataclasses.dataclass(init=False, repr=False, eq=False)(cls)
    every = dataclasses.fields(cls)
    known, count = {one.name for one in every}, len(every)
    by_place = [one.name for one in every if not one.kw_only]
    defaults = [(one.name, one.default) for one in every if one.default is not dataclasses.MISSING]
    makers = [(one.name, one.default_factory) for one in every if one.default_factory is not dataclasses.MISSING]
    compared = [one.name for one in every if one.compare]
    hashed = [one.name for one in every if (one.compare if one.hash is None else one.hash)]
    printed = [one.name for one in every if one.repr]
    finish = getattr(cls, "__post_init__", None)

    def __init__(self: Any, /, *args: Any, **named: Any) -> None:
        values = vars(self)
        values.update(zip(by_place, args, strict=False))
        values.update(named)
        given = len(values)
        if given < count:
            for name, value in defaults:
                values.setdefault(name, value)
            for name, make in makers:
                if name not in values:
                    values[name] = make()
        if len(values) != count or given != len(args) + len(named) or not named.keys() <= known:
            cls.__signature__.bind(*args, **named)  # raises what Python says of it
        if finish is not None:
            finish(self)

    def __eq__(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        ours, theirs = vars(self), vars(other)
        return [ours[name] for name in compared] == [theirs[name] for name in compared]

    def __hash__(self: Any) -> int:
        values = vars(self)
        return hash(tuple([values[name] for name in hashed]))

    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in printed)})"

    def refused(self: Any, name: str, *_: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    methods = {"__init__": __init__, "__setattr__": refused, "__delattr__": refused, "__signature__": _Signature()}
    methods |= {"__eq__": __eq__, "__hash__": __hash__} if eq else {}
    methods |= {"__repr__": __repr__} if repr else {}
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    cls.__dataclass_params__.frozen = True  # so that Python's can be made from it
    return cls
