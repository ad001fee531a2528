"""What a chip is: units, rates, memory, links. Data in TOML with its sources; code only reads and checks it."""

from npuscope.chip.devices.chip import Constant, Device, Link, constants, is_known, load, names

__all__ = ["Constant", "Device", "Link", "constants", "is_known", "load", "names"]
