"""Chips whose tile programs can be lowered: what their file must say, and what a tile takes in a memory space."""

from __future__ import annotations

from math import prod

from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import Device, is_known, load, names
from npuscope.ops.dtypes import BY_NAME

DEFAULT = "ascend910b1"
SPACES = ("Vec", "Mat", "Left", "Right", "Acc", "Bias")
CORE = (  # constants of [core] that lowering and its checks read
    "acc_rows_int32", "address", "fractal", "fractal_k", "gm_line", "l0_cycles", "l0_cycles_fp32", "l0_drain",
    "l0_drain_fixed", "l0_drain_odd", "l0_drain_row", "l0_head", "l0_left", "l0_right", "ring_slots", "vec_least",
)  # fmt: skip


def chip_to_lower_for(name: str, platform: str = "") -> Device:
    """A device by name or file, refused where its file leaves out what lowering needs.

    Without a name the one of the platform that a program was written for (`a5`, `a2a3sim`), else the usual one.
    """
    meant = platform.removesuffix("sim")
    device = load(name or (meant if is_known(meant) else DEFAULT))
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


Shape = tuple[int, ...]


def up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def matrix(shape: Shape) -> tuple[int, int]:
    """Rows and columns: tiles on chip are two-dimensional, leading axes are rows."""
    return (prod(shape[:-1]), shape[-1]) if shape else (1, 1)


def tile_bytes(shape: Shape, dtype: str, space: str, device: Device) -> int:
    """Bytes of a tile in a space. Cube spaces hold fractals; an INT32 accumulator has its rows padded further."""
    rows, columns = matrix(shape)
    if space == "Vec" or space == "Bias":
        return max(BY_NAME[dtype].size(rows * columns), int(device.core["vec_least"].value))
    fractal = int(device.core["fractal"].value)
    if space == "Acc":
        least = int(device.core["acc_rows_int32"].value) if dtype == "INT32" else fractal
        return BY_NAME[dtype].size(up(rows, least) * up(columns, fractal))
    deep = max(int(device.core["fractal_k"].value / BY_NAME[dtype].width), 1)
    return BY_NAME[dtype].size(up(rows, fractal) * up(columns, deep))
