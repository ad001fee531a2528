"""What a prediction on top of a capture says: how far the simulation was off, and what the change makes of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from npuscope.table.columns import Table, all_rows
from npuscope.table.formats import figures, many
from npuscope.table.parts import Heading, Notes, Part, Rows
from npuscope.time.measured.base import (
    CHANGED,
    MeasuredBase,
    MeasuredChange,
)
from npuscope.time.uncertainty import chance_told, estimate_told, interval_told

Section = tuple[str, Sequence[str], Sequence[Table]]  # of a page: title, sentences, tables
MOST = 40  # rows of kernels in text
NAMED = 6  # kernels of a sentence
FAR = 0.1  # of the measured wall


@dataclass(frozen=True)
class Anchored:
    """A prediction, with the files that --measured names."""

    program: str
    capture: str
    prediction: MeasuredChange


def prediction(one: Anchored, wide: bool = False) -> Iterator[Part]:
    """What `npuscope simulate --measured` adds."""
    tables = one.prediction.tables()
    yield Heading(_title(one.program, one.capture, one.prediction.anchor))
    yield Rows(tables["kernels"], MOST, wide=wide)
    yield Rows(tables["costs"], wide=wide)
    yield Rows(tables["walls"], wide=wide)
    yield Notes(_sentences(one.prediction))


def anchor(program: str, capture: str, found: MeasuredBase) -> Iterator[Part]:
    """What `npuscope rank --measured` adds: the capture against the program it is of."""
    yield Heading(_title(program, capture, found))
    for table in found.tables().values():
        yield Rows(table, MOST)
    yield Notes(_about(found))


def sections(one: Anchored) -> list[Section]:
    """The same for a page."""
    title = _title(one.program, one.capture, one.prediction.anchor)
    return [(title, _sentences(one.prediction), list(one.prediction.tables().values()))]


def anchor_sections(program: str, capture: str, found: MeasuredBase) -> list[Section]:
    return [(_title(program, capture, found), _about(found), list(found.tables().values()))]


def prediction_dict(one: Anchored) -> dict[str, object]:
    """The field `anchor` of `npuscope simulate --json` (docs/reference/json.md)."""
    found = one.prediction
    expected = found.expected
    return {
        **_dict(one.program, one.capture, found.anchor),
        "simulated_wall_ns": found.plain.wall_ns,
        "change": found.change.as_dict(),
        "expected_ns": None if expected is None else round(expected.value),
        "expected_interval_ns": None if expected is None else expected.as_dict(),
        **all_rows(found.tables()),
    }


def anchor_dict(program: str, capture: str, found: MeasuredBase) -> dict[str, object]:
    """The field `anchor` of `npuscope rank --json`."""
    return {**_dict(program, capture, found), **all_rows(found.tables())}


def _dict(program: str, capture: str, found: MeasuredBase) -> dict[str, object]:
    return {
        "program": program,
        "capture": capture,
        "matched": len(found.matched),
        "only_measured": [one.kernel for one in found.only_measured],
        "only_simulated": [one.kernel for one in found.only_simulated],
        "typical": found.factors.typical,
    }


def _title(program: str, capture: str, found: MeasuredBase) -> str:
    return f"{capture} against {program}: {many(len(found.matched), 'kernel')} matched{_unmatched(found)}"


def _unmatched(found: MeasuredBase) -> str:
    told = [(found.only_measured, "measured"), (found.only_simulated, "simulated")]
    return "".join(
        f", {len(some)} only {what} ({_listed([one.kernel for one in some])})" for some, what in told if some
    )


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _about(found: MeasuredBase) -> list[str]:
    """How near the anchored run comes to the capture, and what to doubt."""
    lines = []
    if found.measured_ns is not None:
        off, plain = found.anchored_ns / found.measured_ns - 1, found.simulated_ns / found.measured_ns - 1
        far = ": something in it is not in the model" if abs(off) > FAR else ""
        told = f"before the change: anchored {off:+.1%} of the measured wall, {plain:+.1%} without the capture"
        lines.append(f"{told}{far}")
    there, here = (dict(one.cores) for one in (found.measured, found.simulated))
    if there and there != here:
        ran, own = (" and ".join(f"{count} {unit}" for unit, count in some.items()) for some in (there, here))
        lines.append(f"the capture ran on {ran} cores, the simulation on {own}: is --device the chip it is of?")
    if other := [one.kernel for one in found.other_blocks]:
        lines.append(f"other numbers of blocks than the capture's: {_listed(other)}; is it of the same arguments?")
    return lines


def _sentences(found: MeasuredChange) -> list[str]:
    change, expected = found.change, found.expected
    lines = _about(found.anchor)
    if changed := [kernel for kernel, state in found.states.items() if state == CHANGED]:
        told = "taken to be off by as much as before the change, which is a guess"
        lines.append(f"changed: {_listed(changed)}; {told}")
    if unknown := found.unmeasured:
        typical = f"{found.anchor.factors.typical:.2f}x"
        lines.append(f"not measured: {_listed(unknown)}; taken to be off by {typical}, the median of the others")
    ratio = change.ratio
    lines.append(
        f"the change: {figures(ratio.value)} of the time before (80%: {interval_told(ratio)}), "
        f"faster with a probability of {chance_told(change)}"
    )
    if expected is not None and found.anchor.measured_ns is not None:
        lines.append(f"so the measured {figures(found.anchor.measured_ns / 1e3)} µs become {estimate_told(expected)}")
    lines.append(
        f"the interval: how far {ratio.basis.rows} published changes of {ratio.basis.commits} commits were off when "
        "told from their measured time before; a capture kernel by kernel should do no worse"
    )
    return lines
