"""Computed once per program, though several rules ask: kept as long as the program is."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from npuscope.lower.program import Program

Result = TypeVar("Result")


def once(function: Callable[[Program], Result]) -> Callable[[Program], Result]:
    """The function, which is not run again for a program it has seen."""
    known: WeakKeyDictionary[Program, Result] = WeakKeyDictionary()

    @wraps(function)
    def remembered(program: Program) -> Result:
        if program not in known:
            known[program] = function(program)
        return known[program]

    return remembered
