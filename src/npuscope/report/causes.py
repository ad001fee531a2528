"""A diagnosis as parts of a report: the first cause with its evidence and what to do, then the others."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.analysis.diagnosis import Cause, Diagnosis
from npuscope.analysis.forms import duration
from npuscope.report.document import Heading, In, Notes, Part, Say

OTHERS = 3  # causes after the first, in text
WORTH_A_LINE = 0.02  # of the wall


def causes(diagnosis: Diagnosis) -> Iterator[Part]:
    """What text, Markdown and pages say of a run's causes."""
    first = diagnosis.verdict
    yield Say(first.sentence, strong=True)
    yield Notes([*worth(first), *first.evidence, *([first.remedy] if first.remedy else [])])
    others = diagnosis.causes[1:]
    shown = [cause for cause in others if _worth_a_line(cause, diagnosis.wall_ns)][:OTHERS]
    if shown:
        yield Heading("Also:", where=In.TEXT)
        yield Notes([line for cause in shown for line in _told(cause)], where=In.TEXT)
    if others:
        yield Heading("Other causes", where=In.POSTED)
        yield Notes([" ".join((*_told(cause), *cause.evidence)) for cause in others], where=In.POSTED)


def _worth_a_line(cause: Cause, wall_ns: int) -> bool:
    """A cause of little, or one whose mending saves little at best, is left to Markdown and JSON."""
    saves = cause.gain is None or cause.gain.high_ns >= WORTH_A_LINE * wall_ns
    return saves and cause.share >= WORTH_A_LINE


def worth(cause: Cause) -> list[str]:
    """What mending a cause is worth, as a sentence; nothing where nobody knows."""
    gain = cause.gain
    if gain is None:
        return []
    if gain.high_ns <= 0:
        return ["Mending it would save nothing."]
    return [f"Mending it would save {_saved(cause)}."]


def _saved(cause: Cause) -> str:
    gain = cause.gain
    if gain is None:
        return ""
    low = "0" if gain.low_ns <= 0 else duration(gain.low_ns)
    return f"{duration(gain.ns)} ({low} to {duration(gain.high_ns)})"


def _told(cause: Cause) -> list[str]:
    saved = f" Worth {_saved(cause)}." if cause.gain is not None else ""
    return [f"{cause.sentence}{saved}", *([f"  {cause.remedy}"] if cause.remedy else [])]
