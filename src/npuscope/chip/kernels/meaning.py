"""What the table says of one name. Each question has its own answer: an entry that knows the whole name decides, else
the first entry that finds something in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from typing import Generic, TypeVar

import polars as pl

from npuscope.chip.kernels.demangle import demangled
from npuscope.chip.kernels.plain_name import LONGEST, plain
from npuscope.chip.kernels.table import Collective, Entry, Formula, Kind, Landmark, Law, Phase, Rule, known

T = TypeVar("T")
NAMES = 65536  # that answers are kept of
# of a kernel that no entry knows: the bytes of its tensors are a floor, and nothing else is known
UNKNOWN = Rule("unknown", Formula("bytes", floor=True))
OTHER = "other"  # area of names that no entry places
# an answer, with the patterns for whole names and those found in names that have it
Said = tuple[T, tuple[str, ...], tuple[str, ...]]
Patterns = list[tuple[T, re.Pattern[str]]]


class _Question(Generic[T]):
    """One thing that entries say. The table is read when a question is first asked."""

    def __init__(self, said: Callable[[Entry], Iterable[Said[T]]]) -> None:
        self._said = said
        self.of: Callable[[str], T | None] = lru_cache(maxsize=NAMES)(self._judged)

    def _judged(self, name: str) -> T | None:
        whole, found = self._patterns
        name = demangled(name)
        letters, text = plain(name), name[:LONGEST]
        for answer, pattern in whole:
            if pattern.fullmatch(letters):
                return answer
        return next((answer for answer, pattern in found if pattern.search(text)), None)

    @cached_property
    def _patterns(self) -> tuple[Patterns[T], Patterns[T]]:
        said = [told for entry in known().kernel for told in self._said(entry)]
        return (
            [(answer, _any_of(whole, 0)) for answer, whole, _ in said if whole],
            [(answer, _any_of(found, re.IGNORECASE)) for answer, _, found in said if found],
        )


def _any_of(patterns: Iterable[str], flags: int) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), flags)


def _question(answer: Callable[[Entry], T | None]) -> _Question[T]:
    """A question that an entry answers for all the names it knows."""

    def said(entry: Entry) -> Iterator[Said[T]]:
        if (told := answer(entry)) is not None:
            yield told, entry.whole_names, entry.found

    return _Question(said)


def _paired(entry: Entry) -> Iterator[Said[str]]:
    yield from ((name, patterns, ()) for name, patterns in entry.names.items())
    if entry.align is not None:
        yield entry.align, (), entry.found


_RULE = _question(lambda entry: entry.rule)
_AREA = _question(lambda entry: entry.area)
_KIND: _Question[Kind] = _question(lambda entry: entry.kind)
_COLLECTIVE: _Question[Collective] = _question(lambda entry: entry.collective)
_LANDMARK: _Question[Landmark] = _question(lambda entry: entry.landmark)
_PHASE: _Question[Phase] = _question(lambda entry: entry.phase)
_LAW: _Question[Law] = _question(lambda entry: entry.law)
_ALIGNED = _Question(_paired)


def rule_of(name: str) -> Rule:
    """Family and work of a kernel; `UNKNOWN` where no entry has them."""
    return _RULE.of(name) or UNKNOWN


def area_of(name: str) -> str:
    """The area of the model that a kernel's name tells."""
    return _AREA.of(name) or OTHER


def kind_of(name: str) -> Kind:
    """comm, copy or task, for captures that tell nothing but the name."""
    return _KIND.of(name) or "task"


def collective_of(name: str) -> Collective | None:
    """all_reduce of hcom_allReduce_, HcomAllReduce and ncclDevKernel_AllReduce_Sum_bf16 alike."""
    return _COLLECTIVE.of(name)


def landmark_of(name: str) -> Landmark:
    """Whether a kernel tells where a forward pass is."""
    return _LANDMARK.of(name) or "none"


def phase_of(name: str) -> Phase | None:
    """The phase that an attention is made for, where its name tells."""
    return _PHASE.of(name)


def law_of(name: str) -> Law | None:
    """The calibrated law that gives a kernel's time."""
    return _LAW.of(name)


def aligned_name(name: str) -> str | None:
    """The name under which kernels of one thing meet over frameworks; None for a name that no entry has."""
    found = _ALIGNED.of(name)
    return None if found == "none" else found


def is_comm(names: pl.Series) -> pl.Series:
    """True for names of communication; false for null. A million names that differ in their numbers are judged once."""
    distinct = names.drop_nulls().unique()
    shapes = distinct.str.replace_all("[0-9]+", "0")
    comm = [shape for shape in shapes.unique() if kind_of(shape) == "comm"]
    return names.is_in(distinct.filter(shapes.is_in(comm)).implode()).fill_null(False)
