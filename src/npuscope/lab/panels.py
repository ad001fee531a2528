"""The panels of one simulated program beside its timeline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from npuscope.check.checked import Checked
from npuscope.lab.document import Payload
from npuscope.simulate.run import Simulated


def panels_of(simulated: Simulated, checked: Checked, file: Path) -> Iterator[tuple[str, Payload]]:
    """Each panel's name and payload."""
    yield from ()
