"""A time found by calibration, in the words every law answers with."""

from __future__ import annotations

from typing import Literal, NamedTuple

Source = Literal["MEASURED", "INTERPOLATED", "ANALYTIC", "UNKNOWN"]


class LawTime(NamedTuple):
    """`inside`: the call is within the sizes that the law was fitted to. `why` names the law."""

    seconds: float
    source: Source
    inside: bool
    why: str
