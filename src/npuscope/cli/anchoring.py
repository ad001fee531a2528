"""`--measured OLD.py=CAPTURE`, which simulate, rank and sweep share: the capture, and the program that it is of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from npuscope.chip.devices import Device
    from npuscope.lower.lowering import LoweringOptions
    from npuscope.time.measured.base import MeasuredBase


class Before(NamedTuple):
    program: str
    capture: str
    anchor: MeasuredBase


def files_of(measured: str) -> tuple[str, str]:
    """Program and capture of `OLD.py=CAPTURE`."""
    from npuscope.base.errors import NpuscopeError

    program, sign, capture = measured.partition(".py=")
    if not sign or not program or not capture:
        raise NpuscopeError(
            f"--measured takes OLD.py=CAPTURE, not '{measured}'",
            remedy="Name the program before the change and a capture of it, as old.py=run/chip_swimlane_records.json.",
        )
    return f"{program}.py", capture


def anchor_of(
    measured: str,
    argv: Sequence[str],
    chip: Device,
    lowering: LoweringOptions,
    number: int | None,
    settings: Mapping[str, str],
) -> Before:
    """Reads the capture, simulates the program before the change and holds the two against one another."""
    from npuscope.time.chip.prepare import prepare
    from npuscope.time.measured.base import anchor
    from npuscope.time.measured.observed import observed_in
    from npuscope.time.programs import fitting, program_of
    from npuscope.trace import read

    program, capture = files_of(measured)
    found = observed_in(read(capture), capture)
    before = fitting(program_of(program, argv, chip, lowering, number, settings=settings))
    return Before(program, capture, anchor(prepare(before), found, capture))
