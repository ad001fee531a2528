"""A predicted time with its interval, for people: the one place that says it, in sentences and in tables."""

from __future__ import annotations

from npuscope.table.formats import TIMES, Form, figures, fitting, interval, significant
from npuscope.time.misses import Basis
from npuscope.time.uncertainty import Against, Estimate


def estimate_told(one: Estimate) -> str:
    """Nanoseconds as 1.03 ms (80%: 0.737 to 1.52): one unit for the value and its interval."""
    unit = fitting(one.value, TIMES)
    shown = one.times(1 / unit.worth)
    return f"{significant(shown.value)} {unit.name} ({one.coverage * 100:.0f}%: {interval_told(shown)})"


def interval_told(one: Estimate) -> str:
    return interval(one.low, one.high)


def chance_told(one: Against) -> str:
    """Whether B is faster: the probability, and where it is too close to even the word for that."""
    return _chance(one.faster, one.verdict)


def _chance(faster: float, verdict: str) -> str:
    chance = f"{min(max(faster, 0.01), 0.99):.0%}"
    return f"{chance}, undecided" if verdict == "undecided" else chance


def versus_told(one: Against) -> str:
    """A simulated change in a sentence."""
    return (
        f"Both are simulated: measured, the ratio of {figures(one.ratio.value)} lies from {interval_told(one.ratio)} "
        f"{one.ratio.coverage * 100:.0f}% of the time; faster with a probability of {chance_told(one)}."
    )


def _interval(value: object) -> str:
    return interval(value["low"], value["high"]) if isinstance(value, dict) else str(value)


def _compared(value: object) -> str:
    if not isinstance(value, dict):
        return str(value)
    undecided = value["verdict"] == "undecided"
    chance = "undecided" if undecided else _chance(value["probability_faster"], value["verdict"])
    return f"{figures(value['low'])}–{figures(value['high'])}, {chance}"


def _span(value: object) -> str:
    return " to ".join(figures(one) for one in value) if isinstance(value, list | tuple) else str(value)


INTERVAL = Form("text", "object", _interval)  # as Estimate.as_dict() has it
COMPARED = Form("text", "object", _compared)  # as Against.as_dict() has it
SPAN = Form("text", "[low, high], ns", _span, TIMES)


def basis_told(one: Basis, coverage: float, kernel: str) -> str:
    """What the interval means; `kernel` is the interval of a kernel's time as multiples of it."""
    return (
        f"how sure: of {one.rows} published times that were predicted like this, {coverage * 100:.0f}% lie in such an "
        f"interval; a single kernel may take {kernel} times what is said here"
    )
