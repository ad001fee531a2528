"""Time a tile program on a model of the chip.

Time, tasks, what bounds it, and the report of the simulated run.

Examples:

  npuscope simulate decode_layer.py

  npuscope simulate decode_layer.py --device 910b2 -o layer.pftrace -- --max-seq 4096   (for ui.perfetto.dev)

  npuscope simulate decode_layer.py --layers 4 --set MLP_TN=256 --json

  npuscope simulate decode_layer.py --pipes gate_proj   (inside one block: who waited for whom)

  npuscope simulate new.py --measured old.py=run/chip_swimlane_records.json -- --max-seq 4096   (on top of a capture)

Exit code 1 where the program does not fit on the chip.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from npuscope.cli.output import (
    DeviceName,
    HtmlFile,
    Jitter,
    JsonFlag,
    Measured,
    ProgramNumber,
    RingSlots,
    SetOption,
    WideFlag,
    print_json,
    print_report,
    progress_bar,
)

if TYPE_CHECKING:
    from npuscope.tile.record.model import Mode


def command(
    file: Annotated[str, typer.Argument(help="A tile program: a Python file.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The program's own arguments, after --.")] = None,
    device: DeviceName = "ascend910b1",
    layers: Annotated[int | None, typer.Option(min=1, help="The program's own --layers, if it has one.")] = None,
    setting: SetOption = None,
    out: Annotated[
        str | None, typer.Option("-o", "--out", help="Write the trace here; `npuscope formats` lists the endings.")
    ] = None,
    program: ProgramNumber = None,
    ring_slots: RingSlots = None,
    values: Annotated[
        bool, typer.Option("--values/--shapes", help="Compute, where values decide what runs, or only record shapes.")
    ] = False,
    pipes: Annotated[
        str | None, typer.Option("--pipes", help="Look inside one block of this kernel; -o then writes its pipes.")
    ] = None,
    measured: Measured = None,
    jitter: Jitter = None,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Explain the run, or only its times.")] = True,
    html: HtmlFile = None,
    wide: WideFlag = False,
    json: JsonFlag = False,
) -> None:
    from npuscope.answer.prediction import Prediction
    from npuscope.answer.request import Request
    from npuscope.base.errors import NpuscopeError
    from npuscope.cli.anchoring import Before, before_of, files_of
    from npuscope.cli.output import check_outputs, settings_of, write_reports
    from npuscope.explain import explain
    from npuscope.lab.document import page
    from npuscope.lab.program_runs import prediction_document
    from npuscope.lab.runs import report_document
    from npuscope.report.anchor import sections
    from npuscope.report.program import pipes as pipes_report
    from npuscope.report.program import pipes_dict
    from npuscope.report.simulate import refused, refused_dict, simulate_dict
    from npuscope.report.simulate import simulate as simulate_report
    from npuscope.time.inside import block_diagnosis, inside
    from npuscope.time.run import chip_to_time
    from npuscope.trace.formats import check_target

    if pipes is not None and jitter is not None:
        raise NpuscopeError("--jitter is about the run, not about the inside of a block")
    if pipes is not None and measured is not None:
        raise NpuscopeError("--measured is about the run, not about the inside of a block")
    check_outputs([file, *(files_of(measured) if measured else ())], out, html)
    target = None if out is None else check_target(out)
    of_both = [] if layers is None else [f"LAYERS={layers}"]  # of a program before the change, too
    settings = tuple(settings_of([*(setting or []), *of_both]).items())
    mode: Mode = "values" if values else "shapes"
    chip = chip_to_time(device)
    request = Request(file, tuple(arguments or ()), settings, device, program, ring_slots, mode, jitter)
    with progress_bar():
        before: Before | None = None
        prediction = Prediction(request)
        if prediction.unfit:
            if json:
                print_json(refused_dict(file, chip.name, prediction.unfit))
            else:
                print_report(refused(file, chip.name, prediction.unfit))
            raise typer.Exit(1)
        if pipes is not None:
            block = inside(prediction.simulated, pipes)
            if out is not None:
                block.trace().write(out, target)
            bound = block_diagnosis(block)
            name = f"{file}: {pipes}"
            written = write_reports(
                {html: lambda: page(report_document(name, explain(block.trace(), diagnosis=bound)))}
            )
            if json:
                print_json(pipes_dict(file, block, bound))
            else:
                print_report(pipes_report(file, block, bound), [*([out] if out else []), *written])
            return
        if measured is not None:
            before = before_of(measured, replace(request, settings=tuple(settings_of(of_both).items())))
            prediction = prediction.on(before.base)
        anchored = before.change(prediction) if before else None
        if out is not None:
            prediction.simulated.trace.write(out, target)
        first = sections(anchored) if anchored else []
        written = write_reports({html: lambda: page(prediction_document(file, prediction, first))})
        result = None if json else list(simulate_report(prediction, anchored, report, wide))
        data = simulate_dict(prediction, anchored, report) if json else {}
    if result is None:
        print_json(data)
    else:
        print_report(result, [*([out] if out else []), *written])
