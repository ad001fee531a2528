"""Mistakes in calling the harness: one sentence with the user's file and line."""

from __future__ import annotations

import math
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

import numpy as np

from npuscope.base.errors import NpuscopeError
from npuscope.tile.record import sites
from npuscope.tile.record.model import Site


class Misuse(NpuscopeError, ValueError, TypeError):
    """Something that the harness cannot use; a ValueError or TypeError to those who catch these."""


class NoSuchValue(Misuse, KeyError):
    """A golden asks for a tensor that no spec has; a KeyError to those who catch that."""


def misuse(what: str, remedy: str = "", *, place: Site | None = None) -> Misuse:
    """At the line of the user's code that led here, or at the place given."""
    place = place or sites.site(sites.here())
    return Misuse(what, path=place.file, line=place.line, remedy=remedy)


def misuse_of(function: Callable[..., object], what: str) -> Misuse:
    """At the line where a user's function is defined; where it does not tell, at the call."""
    code = getattr(function, "__code__", None)
    place = None if code is None else Site(code.co_filename, code.co_firstlineno, code.co_name)
    return misuse(what, place=place)


class Values(dict[str, object]):
    """What a golden function gets: tensors and numbers by name, which says what there is when asked for another."""

    def __missing__(self, name: object) -> NoReturn:
        place = sites.site(sites.here())
        remedy = f"There are {', '.join(self)}."
        raise NoSuchValue(f"the golden asks for {name!r}", path=place.file, line=place.line, remedy=remedy)


@contextmanager
def inputs_only_read() -> Iterator[None]:
    """NumPy forbids a golden to write to an input; this says what to do about it."""
    try:
        yield
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = Site(frame.filename, frame.lineno or 0, frame.name)
        remedy = "The spec of an output says is_output=True."
        raise misuse("the golden writes to an input, which is read-only", remedy, place=place) from error


def check_number(name: str, value: object, most: float = math.inf) -> None:
    """A number from 0 to `most`."""
    if not isinstance(value, int | float | np.integer | np.floating) or isinstance(value, bool):
        raise misuse(f"{name} must be a number, not {told(value)}")
    if not 0 <= value <= most:
        wanted = f"in [0, {most:g}]" if most < math.inf else "0 or more"
        raise misuse(f"{name} must be {wanted}, not {value}")


def told(value: object) -> str:
    """A wrong value as a sentence names it."""
    return "None" if value is None else f"the {type(value).__name__} {str(value)[:40]!r}"
