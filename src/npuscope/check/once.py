"""Computed once per program, though several rules ask: kept with the program, as its own properties are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar, cast

from npuscope.lower.program import Program

Result = TypeVar("Result")


def once(function: Callable[[Program], Result]) -> Callable[[Program], Result]:
    """The function, which is not run again for a program it has seen."""
    name = f"{function.__module__}.{function.__qualname__}"

    @wraps(function)
    def remembered(program: Program) -> Result:
        kept = program.__dict__
        if name not in kept:
            kept[name] = function(program)
        return cast(Result, kept[name])

    return remembered
