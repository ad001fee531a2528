"""The program of a file that is to be simulated: recorded by shape on a chip whose file has times.

What does not fit, or what the chip cannot do, is told as `npuscope check` tells it; a comment in the source that
silences such an error lets the program through.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Mapping, Sequence

from npuscope.base.errors import BadInput, NpuscopeError
from npuscope.check.run import unfit
from npuscope.chip.devices import Device, load, names
from npuscope.lower.chip import chip_to_lower_for
from npuscope.lower.lowering import LoweringOptions
from npuscope.lower.program import Program
from npuscope.tile.graph.outputs import the_one
from npuscope.tile.record.model import Mode
from npuscope.tile.script.run import run_script
from npuscope.time.chip.prepare import COSTS

TIMING = (  # constants that the simulator reads beside those of lowering
    "barrier", "block_spread", "block_start", "clash_row", "clash_stride", "clash_whole", "fill_rate",
    "hand_over_to_cube", "hand_over_to_vector", "hbm_rate", "load_clash", "load_cube_hbm", "load_cube_l2",
    "load_cube_row_hbm", "load_cube_row_l2", "load_fixed", "load_groups", "load_latency", "load_vector_hbm",
    "load_vector_l2", "load_vector_row_hbm", "load_vector_row_l2", "scalar_access", "scalar_read", "scalar_step",
    "scalar_turn", "store_fixed", "store_latency", "store_rate", "store_row", "submit_argument", "submit_base",
    "submit_edge", *COSTS,
)  # fmt: skip
CORE = ("scalar_line", "vec_repeat")
RUNTIME = ("scheduler_threads",)


def chip_to_time(name: str) -> Device:
    """A device by name or file, refused where its file has no costs of instructions and of the scheduler."""
    device = chip_to_lower_for(name)
    if lacking := lacking_times(device):
        able = [known for known in names() if load(known).timing]
        raise NpuscopeError(
            f"the file of {device.name} has no {lacking}, so nothing can be simulated on it",
            remedy=f"Take one of {', '.join(able)}, or let the file inherit from one.",
        )
    return device


def lacking_times(device: Device) -> str:
    """The constants that a simulation needs and the device's file has not, in words; empty where it has all."""
    if not device.timing:
        return "[timing]"
    lacking = [f"timing.{name}" for name in TIMING if name not in device.timing]
    lacking += [f"core.{name}" for name in CORE if name not in device.core]
    lacking += [f"runtime.{name}" for name in RUNTIME if name not in device.runtime]
    return ", ".join(lacking)


class Refused(BadInput):
    """A script that leaves before it runs a program, as where it does not take its arguments."""


def program_of(
    file: str,
    argv: Sequence[str],
    device: Device,
    lowering: LoweringOptions = LoweringOptions(),
    number: int | None = None,
    mode: Mode = "shapes",
    settings: Mapping[str, str] | None = None,
) -> Program:
    """Runs a script and gives the program it ran, or the one with this number where it ran several.

    A script that refuses its arguments tells so itself and leaves.
    """
    recordings = run_script(file, argv, mode, settings=settings, golden=False).recordings
    return Program(recordings[the_one(recordings, number, file)], device, lowering)


@contextlib.contextmanager
def refusals(file: str, argv: Sequence[str], remedy: str = "") -> Iterator[None]:
    """Makes a script's leaving inside the block an error with the last of its own words."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            yield
    except SystemExit as left:
        said = [line.strip() for line in told.getvalue().splitlines() if line.strip()] or [f"exit code {left.code}"]
        did = f"refuses {' '.join(argv)}" if argv else "leaves before it runs a program"
        raise Refused(f"{did} ({said[-1]})", path=file, remedy=remedy) from None


def fitting(program: Program) -> Program:
    """The program, refused with the first of what keeps it from running on the chip."""
    errors = unfit(program)
    if errors:
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        raise BadInput(f"{errors[0].message}{more}", path=errors[0].file, line=errors[0].line, remedy=errors[0].fix)
    return program
