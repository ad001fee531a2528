"""Fit a device file to your own machine, from captures.

Captures of a program in, a TOML file for --device out.

Examples:

  npuscope calibrate decode_layer.py run/chip_swimlane_records.json -o mychip.toml

  npuscope calibrate decode_layer.py run_1 run_2 run_3 --device 910b2 -o mychip.toml -- --max-seq 4096

  npuscope simulate other.py --device mychip.toml

Constants of [timing] move only as far as the captures ask for it. The new file inherits from --device and names what
moved, with the captures as its source. Printed are what moved and by how much, how far kernels, the scheduler's costs
and the wall are off before and after, and what the captures cannot tell.
"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.base.errors import CannotWrite
from npuscope.chip.devices import inheriting_file, is_known
from npuscope.cli import options
from npuscope.cli.output import Command, after_dashes, check_outputs, progress_bar, settings_of, show, write_texts
from npuscope.report import device as report
from npuscope.time.measured.calibrate import calibrate
from npuscope.time.measured.observed import observed_in
from npuscope.time.run import chip_to_time
from npuscope.trace import read

__all__ = ["Command", "command"]


def command(
    context: typer.Context,
    file: options.Program,
    captures: Annotated[list[str], typer.Argument(help="Captures of it, such as swimlanes.", metavar="CAPTURE...")],
    out: Annotated[str, typer.Option("-o", "--out", help="The device file to write, such as mychip.toml.")],
    device: options.Device = "ascend910b1",
    setting: options.Set = None,
    program: options.ProgramNumber = None,
    ring_slots: options.RingSlots = None,
    json: options.Json = False,
) -> None:
    known = is_known(device)
    check_outputs([file, *captures, *([] if known else [device])], out)
    name = Path(out).stem
    if not out.endswith(".toml") or is_known(name):
        raise CannotWrite(
            "a device file ends in .toml and has no known device's name", path=out, remedy="Name another."
        )
    chip = chip_to_time(device)
    with progress_bar():
        runs = [observed_in(read(capture), capture) for capture in captures]
        argv, settings = after_dashes(context), tuple(settings_of(setting or []).items())
        subject = Prediction(Request(file, argv, settings, device, program, ring_slots))
        found = calibrate(subject.fitting, runs, captures[0])
    inherits = chip.name if known else os.path.relpath(device, Path(out).resolve().parent)
    write_texts({out: inheriting_file(name, f"{chip.title}, calibrated", inherits, found.constants(file, captures))})
    data = {
        "file": file,
        "captures": captures,
        "device": found.device.name,
        "written": out,
        "runs": found.runs,
        "typical_error": report.typical_errors(found),
        "constants": report.constant_table(found).rows(),
        "errors": report.error_table(found).rows(),
    }
    show(partial(report.calibrate, file, captures, found), data, json=json, written=[out])
