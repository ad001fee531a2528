"""Chips whose tile programs can be lowered: their file says what a core holds and what it can do."""

from __future__ import annotations

from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices.chip import Device, load, names

DEFAULT = "ascend910b1"
SPACES = ("Vec", "Mat", "Left", "Right", "Acc", "Bias")
CORE = (  # constants of [core] that lowering and its checks read
    "acc_rows_int32", "address", "fractal", "fractal_k", "gm_line", "l0_cycles", "l0_cycles_fp32", "l0_drain",
    "l0_drain_fixed", "l0_drain_odd", "l0_drain_row", "l0_head", "l0_left", "l0_right", "ring_slots", "vec_least",
)  # fmt: skip


def chip_to_lower_for(name: str) -> Device:
    """A device by name or file, refused where its file leaves out what lowering needs."""
    device = load(name)
    lacking = [f"space.{space}" for space in SPACES if space not in device.space]
    lacking += [f"core.{constant}" for constant in CORE if constant not in device.core]
    lacking += ["rules"] if device.rules is None else []
    if lacking:
        able = [known for known in names() if load(known).space]
        what = "what a core can hold" if not device.space else ", ".join(lacking)
        raise NpuscopeError(
            f"the file of {device.name} does not say {what}, so no tile program can be checked on it",
            remedy=f"Take one of {', '.join(able)}, or let the file say it too (inherits = '{DEFAULT}').",
        )
    return device
