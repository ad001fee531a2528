"""What a runtime is, read from a TOML file: constants that are laid over a device's, and what a call costs beside them.

`with_runtime(device, "hbg")` is the device under that runtime: everything that reads `timing` and `runtime` of a device
sees it. A device alone is under tmr with the constants of its own file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal

import msgspec

from npuscope.base.errors import NpuscopeError
from npuscope.base.toml_file import decode_toml
from npuscope.chip.devices import Constant, Device, bare

TMR, HBG = "tmr", "hbg"
Mode = Literal["aicpu", "vector cores", "LEGACY_UNSUPPORTED_SHAPE", "LEGACY_GRAPH"]


class Runtime(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`timing` and `runtime` as in a device file; `wall` and `host` in seconds, bytes and bytes per second."""

    name: str
    title: str
    aliases: tuple[str, ...]
    timing: dict[str, Constant]
    runtime: dict[str, Constant]
    wall: dict[str, Constant]
    host: dict[str, Constant]
    a5: dict[str, Constant] = {}

    @property
    def around_ns(self) -> float:
        """What a call's device wall has beside the run."""
        return (self.wall["before"].value + self.wall["after"].value) * 1e9


@cache
def runtimes() -> Mapping[str, Runtime]:
    """Every runtime, by name."""
    found = {}
    for file in sorted(files("npuscope.chip.runtimes").iterdir(), key=lambda one: one.name, reverse=True):
        if file.name.endswith(".toml"):
            one = decode_toml(file.read_bytes(), Runtime, "a file of a runtime", Path(file.name))
            found[one.name] = one
    return found


def runtime_named(name: str) -> Runtime:
    """By its short name, or as scripts and captures call it."""
    for one in runtimes().values():
        if bare(name) in {bare(known) for known in (one.name, *one.aliases)}:
            return one
    raise NpuscopeError(f"no runtime '{name}'", remedy=f"Known are {', '.join(runtimes())}.")


def with_runtime(device: Device, name: str) -> Device:
    """The device under a runtime; without a name as it is."""
    if not name or not device.runtime:
        return device
    runtime = runtime_named(name)
    if device.scheduled_by == runtime.name:
        return device
    return msgspec.structs.replace(
        device,
        timing={**device.timing, **runtime.timing} if device.timing else {},
        runtime={**device.runtime, **runtime.runtime},
        scheduled_by=runtime.name,
    )
