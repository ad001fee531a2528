"""`--measured OLD.py=CAPTURE`, which simulate, rank and sweep share: the capture, and the program that it is of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from npuscope.answer.prediction import Prediction
    from npuscope.answer.request import CaptureBase, Request
    from npuscope.report.anchor import Anchored
    from npuscope.time.measured.base import MeasuredBase


class Before(NamedTuple):
    """The program before the change, its capture, and the two held against one another."""

    program: str
    capture: str
    anchor: MeasuredBase

    @property
    def base(self) -> CaptureBase:
        from npuscope.answer.prediction import base_of

        return base_of(self.anchor)

    def change(self, prediction: Prediction) -> Anchored:
        """What a prediction on top of it adds to a report."""
        from npuscope.report.anchor import Anchored
        from npuscope.time.measured.base import MeasuredChange

        return Anchored(self.program, self.capture, MeasuredChange(self.anchor, prediction.plain, prediction.on_base))


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


def before_of(measured: str, alike: Request) -> Before:
    """Reads the capture and holds it against the simulation of the program before the change, asked for alike."""
    from npuscope.answer.prediction import anchor_of

    program, capture = files_of(measured)
    request = replace(alike, file=program, mode="shapes", jitter=None)
    return Before(program, capture, anchor_of(request, capture))
