"""Explain a trace: the verdict, who was busy, who waited for what, scheduling, fan-out, the critical path.

Examples:

  npuscope report run/chip_swimlane_records.json

  npuscope report run/tracr --kernels 'fa_fused|softmax'   (and what of its waiting is hidden)

  npuscope report kernel_details.csv --html report.html --md report.md

  npuscope report kernel_details.csv --step 5 --json
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuscope.cli.output import (
    AreasFile,
    CapturePath,
    HtmlFile,
    JsonFlag,
    KernelsRegex,
    MdFile,
    PassOption,
    StepOption,
    WideFlag,
    print_json,
    print_report,
)
from npuscope.cli.progress_bar import progress_bar


def command(
    path: CapturePath,
    kernels: KernelsRegex = None,
    step: StepOption = None,
    number: PassOption = None,
    html: HtmlFile = None,
    md: MdFile = None,
    wide: WideFlag = False,
    json: JsonFlag = False,
    areas: AreasFile = None,
    cores: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Cores of the device, where the capture does not tell.")
    ] = None,
) -> None:
    from npuscope.analysis import explain
    from npuscope.cli.output import check_outputs, names_of, read_steps, reproduce, write_reports
    from npuscope.report.document import as_markdown
    from npuscope.report.explain import report
    from npuscope.report.html import report_page

    check_outputs([path], html, md)
    name = names_of([path])[0]
    with progress_bar():
        explained = explain(read_steps(path, step, number), kernels, areas, cores)
        written = write_reports(
            {
                html: lambda: report_page(name, explained),
                md: lambda: as_markdown(report(path, name, explained), reproduce()),
            }
        )
    if json:
        print_json(explained.as_dict())
    else:
        print_report(report(path, name, explained, wide), written)
