"""Chips whose tile programs can be lowered: their file says what a core holds and what it can do."""

from __future__ import annotations

from npuscope.device.chip import Device, load, names
from npuscope.errors import NpuscopeError

DEFAULT = "ascend910b1"


def chip_to_lower_for(name: str) -> Device:
    """A device by name or file, refused where its file leaves out what lowering needs."""
    device, whole = load(name), load(DEFAULT)
    lacking = sorted(f"space.{space}" for space in whole.space.keys() - device.space.keys())
    lacking += sorted(f"core.{constant}" for constant in whole.core.keys() - device.core.keys())
    lacking += ["rules"] if device.rules is None else []
    if lacking:
        able = [known for known in names() if load(known).space]
        what = "what a core can hold" if not device.space else ", ".join(lacking)
        raise NpuscopeError(
            f"the file of {device.name} does not say {what}, so no tile program can be checked on it",
            remedy=f"Take one of {', '.join(able)}, or let the file say it too (inherits = '{DEFAULT}').",
        )
    return device
