"""What the table says of one name. Each question has its own answer: an entry that knows the whole name decides, else
the first entry that finds something in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Generic, TypeVar

import polars as pl

from npuscope.kernels.plain_name import LONGEST, plain
from npuscope.kernels.table import Collective, Entry, Formula, Kind, Landmark, Law, Phase, Rule, known

T = TypeVar("T")
NAMES = 65536  # that answers are kept of
# of a kernel that no entry knows: the bytes of its tensors are a floor, and nothing else is known
UNKNOWN = Rule("unknown", Formula("bytes", floor=True))
OTHER = "other"  # area of names that no entry places


class _Question(Generic[T]):
    """One thing that entries say, with the patterns of those that say it."""

    def __init__(self, said: Iterable[tuple[T, Iterable[str], Iterable[str]]]) -> None:
        listed = [(answer, tuple(whole), tuple(found)) for answer, whole, found in said]
        self._whole = [(answer, _any_of(whole, 0)) for answer, whole, _ in listed if whole]
        self._found = [(answer, _any_of(found, re.IGNORECASE)) for answer, _, found in listed if found]

    def answer(self, name: str) -> T | None:
        letters, text = plain(name), name[:LONGEST]
        for answer, pattern in self._whole:
            if pattern.fullmatch(letters):
                return answer
        return next((answer for answer, pattern in self._found if pattern.search(text)), None)


def _any_of(patterns: Iterable[str], flags: int) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), flags)


def _asked(said: Callable[[Entry], T | None]) -> _Question[T]:
    answers = ((said(entry), entry) for entry in known().kernel)
    return _Question((answer, entry.whole_names, entry.found) for answer, entry in answers if answer is not None)


def rule_of(name: str) -> Rule:
    """Family and work of a kernel; `UNKNOWN` where no entry has them."""
    return _rule(name) or UNKNOWN


@lru_cache(maxsize=NAMES)
def _rule(name: str) -> Rule | None:
    return _rules().answer(name)


@lru_cache
def _rules() -> _Question[Rule]:
    return _asked(lambda entry: entry.rule)


@lru_cache(maxsize=NAMES)
def area_of(name: str) -> str:
    """The area of the model that a kernel's name tells."""
    return _areas().answer(name) or OTHER


@lru_cache
def _areas() -> _Question[str]:
    return _asked(lambda entry: entry.area)


@lru_cache(maxsize=NAMES)
def kind_of(name: str) -> Kind:
    """comm, copy or task, for captures that tell nothing but the name."""
    return _kinds().answer(name) or "task"


@lru_cache
def _kinds() -> _Question[Kind]:
    return _asked(lambda entry: entry.kind)


@lru_cache(maxsize=NAMES)
def collective_of(name: str) -> Collective | None:
    """all_reduce of hcom_allReduce_, HcomAllReduce and ncclDevKernel_AllReduce_Sum_bf16 alike."""
    return _collectives().answer(name)


@lru_cache
def _collectives() -> _Question[Collective]:
    return _asked(lambda entry: entry.collective)


@lru_cache(maxsize=NAMES)
def landmark_of(name: str) -> Landmark:
    """Whether a kernel tells where a forward pass is."""
    return _landmarks().answer(name) or "none"


@lru_cache
def _landmarks() -> _Question[Landmark]:
    return _asked(lambda entry: entry.landmark)


@lru_cache(maxsize=NAMES)
def phase_of(name: str) -> Phase | None:
    """The phase that an attention is made for, where its name tells."""
    return _phases().answer(name)


@lru_cache
def _phases() -> _Question[Phase]:
    return _asked(lambda entry: entry.phase)


@lru_cache(maxsize=NAMES)
def law_of(name: str) -> Law | None:
    """The calibrated law that gives a kernel's time."""
    return _laws().answer(name)


@lru_cache
def _laws() -> _Question[Law]:
    return _asked(lambda entry: entry.law)


@lru_cache(maxsize=NAMES)
def aligned_name(name: str) -> str | None:
    """The name under which kernels of one thing meet over frameworks; None for a name that no entry has."""
    found = _aligned().answer(name)
    return None if found == "none" else found


@lru_cache
def _aligned() -> _Question[str]:
    def said() -> Iterator[tuple[str, tuple[str, ...], tuple[str, ...]]]:
        for entry in known().kernel:
            yield from ((name, patterns, ()) for name, patterns in entry.names.items())
            if entry.align is not None:
                yield entry.align, (), entry.found

    return _Question(said())


def is_comm(names: pl.Series) -> pl.Series:
    """True for names of communication; false for null. A million names that differ in their numbers are judged once."""
    distinct = names.drop_nulls().unique()
    shapes = distinct.str.replace_all("[0-9]+", "0")
    comm = [shape for shape in shapes.unique() if kind_of(shape) == "comm"]
    return names.is_in(distinct.filter(shapes.is_in(comm)).implode()).fill_null(False)
