"""What every kernel takes of each memory on chip.

Does it fit, and which tiles fill it, with no NPU.

Examples:

  npuscope memory decode_layer.py

  npuscope memory decode_layer.py --kernel gate_proj --html memory.html

  npuscope memory decode_layer.py --kernel gate_proj --dump -   (the kernel before and after every step of lowering)

  npuscope memory build_output/decode_layer   (what the compiler made: addresses as they are)

  npuscope memory decode_layer.py --ring-slots 8 --json -- --max-seq 512   (arguments after -- are the program's)

Exit code 1 where something does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated

import typer

from npuscope.answer.checks import fits as fits_of
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.check.run import Fit
from npuscope.chip.devices import Device
from npuscope.cli import options
from npuscope.cli.output import check_outputs, progress_bar, show, write_reports
from npuscope.lower.chip import chip_to_lower_for
from npuscope.report.program import lowering_text, memory, memory_tables
from npuscope.table.columns import all_rows
from npuscope.tile.record.model import Mode


def command(
    file: Annotated[str, typer.Argument(help="A tile program: a Python file; or a compiler's build folder.")],
    arguments: options.Arguments = None,
    device: options.ProgramDevice = "",
    kernel: Annotated[str | None, typer.Option(help="Only this kernel or function, with its tiles.")] = None,
    ring_slots: options.RingSlots = None,
    program: options.ProgramNumber = None,
    values: Annotated[bool, typer.Option("--values/--shapes", help="Compute, or only record shapes.")] = False,
    dump: Annotated[
        str | None, typer.Option("--dump", help="Write --kernel's bodies before and after every pass here; - prints.")
    ] = None,
    html: options.Html = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    if dump is not None and kernel is None:
        raise NpuscopeError("--dump writes the steps of one kernel", remedy="Name it with --kernel.")
    if dump == "-" and json:
        raise NpuscopeError("--dump - and --json both print", remedy="Give --dump a file.")
    to_file = None if dump == "-" else dump
    check_outputs([file], html, to_file)
    chip_to_lower_for(device)  # refused before anything runs
    with progress_bar():
        mode: Mode = "values" if values else "shapes"
        fits = fits_of(Request(file, tuple(arguments or ()), (), device, program, ring_slots, mode), kernel)
    chip = fits[0].program.device
    fit_all = not any(fit.errors for fit in fits)
    pages = {html: lambda: _page(file, chip, fits), to_file: lambda: lowering_text(fits)}
    if dump == "-":
        write_reports(pages)
        print(lowering_text(fits), end="")
    else:
        programs = [fit.program.recording.program for fit in fits]
        about = {"file": file, "device": chip.name, "programs": programs, "fits": fit_all}
        show(
            partial(memory, file, chip.name, fits, kernel is not None),
            lambda: {**about, **all_rows(memory_tables(fits, kernel is not None))},
            json=json,
            wide=wide,
            pages=pages,
        )
    if not fit_all:
        raise typer.Exit(1)


def _page(file: str, chip: Device, fits: Sequence[Fit]) -> str:
    from npuscope.lab.program_runs import memory_page

    return memory_page(file, chip, fits)
