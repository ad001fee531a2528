"""A diagnosis as parts of a report: the first cause with its evidence and what to do, then the others."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.explain.diagnosis import Cause, Diagnosis, Gain, Together
from npuscope.table.formats import TIMES, fitting, significant
from npuscope.table.parts import Heading, In, Notes, Part, Say

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
    if diagnosis.together is not None:
        yield Say(together(diagnosis.together))
    if others:
        yield Heading("Other causes", where=In.POSTED)
        yield Notes([" ".join((*_told(cause), *cause.evidence)) for cause in others], where=In.POSTED)


def together(found: Together) -> str:
    """What all findings that save time would save at once."""
    all_of_them = "Both" if found.findings == 2 else f"All {found.findings}"
    return f"{all_of_them} findings that save time, mended together: {_saved(found.gain)} less, simulated."


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
    return [f"Mending it would save {_saved(gain)}."]


def _saved(gain: Gain) -> str:
    unit = fitting(gain.high_ns, TIMES)
    value, low, high = (significant(max(ns, 0) / unit.worth) for ns in (gain.ns, gain.low_ns, gain.high_ns))
    return f"{value} {unit.name} ({low} to {high})"


def _told(cause: Cause) -> list[str]:
    saved = f" Worth {_saved(cause.gain)}." if cause.gain is not None else ""
    return [f"{cause.sentence}{saved}", *([f"  {cause.remedy}"] if cause.remedy else [])]
