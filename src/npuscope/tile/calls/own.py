"""Binds functions written by hand to their ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from npuscope.ops.spec import OpSpec

FUNCTIONS: dict[str, Callable[..., object]] = {}  # spelling -> function
Function = TypeVar("Function", bound=Callable[..., object])


def own(spec: OpSpec, *spellings: str) -> Callable[[Function], Function]:
    """The function that the given spellings of an op call; where none is given, all of them."""

    def bind(function: Function) -> Function:
        FUNCTIONS.update(dict.fromkeys(spellings or spec.names, function))
        return function

    return bind
