"""Compiles a function with Numba, kept on disk; imported only when something is simulated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """The function in machine code, compiled at its first use on this machine."""
    import numba

    return cast(F, numba.njit(cache=True)(function))
