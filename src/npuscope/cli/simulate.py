"""Time a tile program on a model of the chip.

Time, tasks, what bounds it, and the report of the simulated run.

Examples:

  npuscope simulate decode_layer.py

  npuscope simulate decode_layer.py --device 910b2 -o layer.pftrace -- --max-seq 4096   (for ui.perfetto.dev)

  npuscope simulate decode_layer.py --layers 4 --set MLP_TN=256 --json

  npuscope simulate decode_layer.py --pipes gate_proj   (inside one block: who waited for whom)

  npuscope simulate decode_layer.py --build build_output/decode_layer   (kernels as the compiler made them)

  npuscope simulate decode_layer.py --rings   (task windows, heaps and pools: how small they may be)

  npuscope simulate decode_layer.py --explain gate_proj   (how its time came about, constant by constant)

  npuscope simulate allreduce.py --skew 600   (every rank's chip together; launched 600 µs apart)

  npuscope simulate new.py --measured old.py=run/chip_swimlane_records.json -- --max-seq 4096   (on top of a capture)

Exit code 1 where the program does not fit on the chip.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, NoReturn

import typer

from npuscope.answer.prediction import Prediction, anchor_of, base_of
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.check.rule import Finding
from npuscope.cli import options
from npuscope.cli.output import check_outputs, progress_bar, settings_of, show
from npuscope.explain import explain
from npuscope.lab.document import page
from npuscope.lab.program_runs import prediction_document
from npuscope.lab.runs import report_document
from npuscope.report.simulate import BesideCapture, capture_sections, refused, simulate_data
from npuscope.report.simulate import pipes as pipes_report
from npuscope.report.simulate import reasons as reasons_report
from npuscope.report.simulate import simulate as simulate_report
from npuscope.table.columns import all_rows
from npuscope.tile.record.model import Mode
from npuscope.time.inside import Inside, block_diagnosis, inside
from npuscope.time.measured.base import MeasuredChange
from npuscope.time.reasons import Reasons, reasons
from npuscope.time.run import chip_to_time
from npuscope.trace.formats import check_target


def command(
    file: options.Program,
    arguments: options.Arguments = None,
    device: options.ProgramDevice = "",
    layers: Annotated[int | None, typer.Option(min=1, help="The program's own --layers, if it has one.")] = None,
    setting: options.Set = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", help="Write the trace here; `npuscope formats` lists the endings.")
    ] = None,
    program: options.ProgramNumber = None,
    runtime: options.Runtime = "",
    ring_slots: options.RingSlots = None,
    values: options.Values = False,
    pipes: Annotated[
        str | None, typer.Option("--pipes", help="Look inside one block of this kernel; -o then writes its pipes.")
    ] = None,
    explained: Annotated[
        str | None, typer.Option("--explain", help="How the time of this kernel came about, constant by constant.")
    ] = None,
    measured: options.Measured = None,
    build: Annotated[
        str | None, typer.Option(help="The compiler's build folder: kernels as their .pto files say.", metavar="FOLDER")
    ] = None,
    jitter: options.Jitter = None,
    skew: options.Skew = None,
    rings: Annotated[
        bool, typer.Option("--rings", help="The smallest rings of the runtime that do not fail, and do not slow down.")
    ] = False,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Explain the run, or only its times.")] = True,
    html: options.Html = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    if (pipes or explained) is not None and jitter is not None:
        raise NpuscopeError("--jitter is about the run, not about the inside of a block")
    if (pipes or explained) is not None and measured is not None:
        raise NpuscopeError("--measured is about the run, not about the inside of a block")
    check_outputs([file, *(files_of(measured) if measured else ())], out, html)
    target = None if out is None else check_target(out)
    of_both = [] if layers is None else [f"LAYERS={layers}"]  # of a program before the change, too
    settings = tuple(settings_of([*(setting or []), *of_both]).items())
    mode: Mode = "values" if values else "shapes"
    chip_to_time(device)  # refused before anything runs
    request = Request(
        file,
        tuple(arguments or ()),
        settings,
        device,
        program,
        ring_slots,
        mode,
        jitter,
        build=build or "",
        runtime=runtime,
        skew=None if skew is None else skew * 1e3,
    )
    with progress_bar():
        prediction = Prediction(request)
        if prediction.unfit:
            _refuse(file, prediction.chip.name, prediction.unfit, json)
        if explained is not None:
            _show_reasons(file, reasons(prediction.simulated, explained), json, wide)
            return
        if pipes is not None:
            _show_block(file, inside(prediction.simulated, pipes), out, html, json)
            return
        beside = None
        if measured is not None:
            beside = before_of(measured, replace(request, settings=tuple(settings_of(of_both).items())))
            prediction = prediction.on(base_of(beside.base))
            beside = replace(beside, change=MeasuredChange(beside.base, prediction.plain, prediction.on_base))
        if out is not None:
            prediction.trace.write(out, target)
        show(
            partial(simulate_report, prediction, beside, report, rings=rings),
            partial(simulate_data, prediction, beside, report, rings),
            json=json,
            wide=wide,
            pages={html: lambda: page(prediction_document(file, prediction, capture_sections(beside)))},
            written=[out],
        )


def _refuse(file: str, device: str, errors: Sequence[Finding], json: bool) -> NoReturn:
    each = [{"id": e.id, "file": e.file, "line": e.line, "message": e.message, "remedy": e.remedy} for e in errors]
    data = {"file": file, "device": device, "error": errors[0].message, "errors": each}
    show(partial(refused, file, device, errors), data, json=json)
    raise typer.Exit(1)


def _show_block(file: str, block: Inside, out: str | None, html: str | None, json: bool) -> None:
    """The inside of one block."""
    bound = block_diagnosis(block)
    if out is not None:
        block.trace().write(out, check_target(out))
    data = {
        "file": file,
        "kernel": block.kernel,
        **bound.as_dict(),
        "blocks": block.all_blocks,
        "duration_ns": block.timing.duration,
        "slow": block.slow,
        "instructions": len(block.lane.pipe),
        **all_rows(block.tables()),
    }
    name = f"{file}: {block.kernel}"
    pages = {html: lambda: page(report_document(name, explain(block.trace(), diagnosis=bound)))}
    show(partial(pipes_report, file, block, bound), data, json=json, pages=pages, written=[out])


def _show_reasons(file: str, found: Reasons, json: bool, wide: bool) -> None:
    block = found.block
    data = {
        "file": file,
        "kernel": block.kernel,
        "blocks": block.all_blocks,
        "duration_ns": found.whole_ns,
        "slow": block.slow,
        **all_rows(found.tables()),
    }
    show(partial(reasons_report, file, found), data, json=json, wide=wide)


def files_of(measured: str) -> tuple[str, str]:
    """Program and capture of `OLD.py=CAPTURE`."""
    program, sign, capture = measured.partition(".py=")
    if not sign or not program or not capture:
        raise NpuscopeError(
            f"--measured takes OLD.py=CAPTURE, not '{measured}'",
            remedy="Name the program before the change and a capture of it, as old.py=run/chip_swimlane_records.json.",
        )
    return f"{program}.py", capture


def before_of(measured: str, alike: Request) -> BesideCapture:
    """Reads the capture and holds it against the simulation of the program before the change, asked for alike."""
    program, capture = files_of(measured)
    request = replace(alike, file=program, mode="shapes", jitter=None)
    return BesideCapture(program, capture, anchor_of(request, capture))
