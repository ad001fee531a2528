"""A diagnosis as parts of a report: the verdict, then what else is worth mending, each with its gain and its remedy."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.analysis.diagnosis import Cause, Diagnosis
from npuscope.report.document import In, Notes, Part, Say

MORE = 3  # causes in text beside the verdict


def verdict(found: Diagnosis) -> Iterator[Part]:
    """The first cause, and what to do about it."""
    first = found.verdict
    yield Say(first.sentence, strong=True)
    yield Notes([first.advice] if first.advice else [], where=In.TEXT)
    yield Notes([*first.evidence, *([first.advice] if first.advice else [])], where=In.POSTED)


def further(found: Diagnosis) -> Iterator[Part]:
    """The other causes, the weightiest first."""
    yield Notes([told(cause) for cause in found.causes[1 : 1 + MORE]], "also: ", In.TEXT)
    yield Notes([told(cause) for cause in found.causes[1:]], where=In.POSTED)


def told(cause: Cause) -> str:
    """A cause in a line."""
    return f"{cause.sentence} {cause.advice}".strip()
