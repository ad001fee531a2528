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

from typing import Annotated

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
    from functools import partial

    from npuscope.base.errors import NpuscopeError
    from npuscope.check.checked import CheckOptions, check
    from npuscope.check.run import unfit
    from npuscope.cli.anchoring import anchor_of, files_of
    from npuscope.cli.output import check_outputs, settings_of, write_reports
    from npuscope.explain import explain
    from npuscope.explain.explanation import Explanation
    from npuscope.lab.document import document, page
    from npuscope.lab.panels import panels_of
    from npuscope.lab.runs import report_document, run_of
    from npuscope.lower.lowering import LoweringOptions
    from npuscope.report.anchor import Anchored, sections
    from npuscope.report.program import pipes as pipes_report
    from npuscope.report.program import pipes_dict
    from npuscope.report.simulate import Told, refused, refused_dict, simulate_dict, wall_dict
    from npuscope.report.simulate import simulate as simulate_report
    from npuscope.time.diagnosis import diagnosis_of
    from npuscope.time.inside import block_diagnosis, inside
    from npuscope.time.jitter import with_jitter
    from npuscope.time.measured.base import predict
    from npuscope.time.priced import prices_of
    from npuscope.time.programs import chip_to_time, program_of
    from npuscope.time.run import simulate
    from npuscope.trace.formats import check_target

    if pipes is not None and jitter is not None:
        raise NpuscopeError("--jitter is about the run, not about the inside of a block")
    if pipes is not None and measured is not None:
        raise NpuscopeError("--measured is about the run, not about the inside of a block")
    check_outputs([file, *(files_of(measured) if measured else ())], out, html)
    target = None if out is None else check_target(out)
    of_both = [] if layers is None else [f"LAYERS={layers}"]  # of a program before the change, too
    settings = settings_of([*(setting or []), *of_both])
    chip = chip_to_time(device)
    lowering = LoweringOptions(ring_slots=ring_slots)
    with progress_bar():
        subject = program_of(file, arguments or [], chip, lowering, program, "values" if values else "shapes", settings)
        errors = unfit(subject)
        if errors:
            if json:
                print_json(refused_dict(file, chip.name, errors))
            else:
                print_report(refused(file, chip.name, errors))
            raise typer.Exit(1)
        simulated = simulate(subject)
        if pipes is not None:
            block = inside(simulated, pipes)
            if out is not None:
                block.trace().write(out, target)
            found = block_diagnosis(block)
            name = f"{file}: {pipes}"
            written = write_reports(
                {html: lambda: page(report_document(name, explain(block.trace(), diagnosis=found)))}
            )
            if json:
                print_json(pipes_dict(file, block, found))
            else:
                print_report(pipes_report(file, block, found), [*([out] if out else []), *written])
            return
        anchored = None
        if measured is not None:
            before = anchor_of(measured, arguments or [], chip, lowering, program, settings_of(of_both))
            anchored = Anchored(before.program, before.capture, predict(before.anchor, simulated))
            simulated = anchored.prediction.run
        if jitter is not None:
            simulated = with_jitter(simulated, jitter)
        findings = check(subject, CheckOptions(races=False)).findings if report else ()
        prices = prices_of(simulated, [one.finding for one in findings])
        diagnosis = diagnosis_of(simulated, prices)
        cores = 3 * simulated.prepared.machine.clusters

        def explained_run() -> Explanation:
            return explain(simulated.trace, cores=cores, diagnosis=diagnosis)

        explained = explained_run() if report and not json else None
        told = Told(file, simulated, diagnosis, explained, anchored)
        if out is not None:
            simulated.trace.write(out, target)
        first = sections(anchored) if anchored else []
        wall = wall_dict(simulated, anchored)
        run = partial(run_of, file, simulated=simulated, wall=wall, first=first)

        def run_page() -> str:
            why = explained or explained_run()
            panels = dict(panels_of(simulated, why, check(subject), prices if findings else None))
            return page(document(file, [run(why, panels=panels)]))

        written = write_reports({html: run_page})
    written = [*([out] if out else []), *written]
    if json:
        print_json(simulate_dict(told))
    else:
        print_report(simulate_report(told, wide), written)
