"""Lay a predicted forward pass beside a measured one.

Kernel by kernel: matched, missing, extra, and every error.

PREDICTED is an npuscope prediction, a Chrome trace (TensorCast's, or any) or a CSV with a kernel and a time column;
MEASURED a kernel table or another capture of one pass.

Examples:

  npuscope align predicted.json kernel_details.csv --step 5      (or --pass 2, as `npuscope forward` counts them)

  npuscope align model.csv pass.csv --time-column latency --unit us --md alignment.md

  npuscope align predicted.json pass.csv --map fused_qkv=MatMulV2   (a kernel that has another name there)
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from npuscope.cli import options
from npuscope.cli.output import check_outputs, names_of, pairs_of, progress_bar, show
from npuscope.explain.passes.export import one_pass
from npuscope.forward.align import align
from npuscope.forward.align.sides import CsvColumns, read_side
from npuscope.lab.runs import parts_page
from npuscope.report.predicted import align as report


def command(
    predicted: Annotated[str, typer.Argument(help="The prediction.")],
    measured: Annotated[str, typer.Argument(help="The capture that holds the measured pass.")],
    step: Annotated[int | None, typer.Option(help="The step of MEASURED to take.")] = None,
    number: Annotated[int | None, typer.Option("--pass", help="Or its forward pass, as `forward` lists them.")] = None,
    predicted_step: Annotated[int | None, typer.Option(help="The step of PREDICTED, where it has several.")] = None,
    predicted_pass: Annotated[int | None, typer.Option(help="Or its forward pass.")] = None,
    map: Annotated[list[str] | None, typer.Option(help="A predicted kernel and its measured name, as a=b.")] = None,
    process: Annotated[str | None, typer.Option(help="The model's process, where a trace has several.")] = None,
    kernel_column: Annotated[str | None, typer.Option(help="Of PREDICTED, a CSV: the column of kernels.")] = None,
    time_column: Annotated[str | None, typer.Option(help="Of PREDICTED, a CSV: the column of times.")] = None,
    unit: Annotated[str | None, typer.Option(help="Of that column: ns, us, ms or s.")] = None,
    html: options.Html = None,
    md: options.Md = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    check_outputs([predicted, measured], html, md)
    pairs = pairs_of(map or [], "--map")
    ours_name, theirs_name = names_of([predicted, measured])
    both = (_named(ours_name, predicted_step, predicted_pass), _named(theirs_name, step, number))
    with progress_bar():
        model = read_side(predicted, CsvColumns(kernel_column, time_column, unit))
        ours = one_pass(model, predicted_step, predicted_pass, predicted, "--predicted-")
        theirs = one_pass(read_side(measured), step, number, measured)
        result = align(ours, theirs, pairs, process=process)
    parts = partial(report, both, result)
    pages = {html: lambda: parts_page(f"{both[0]} against {both[1]}", "align", parts())}
    show(parts, result.as_dict, json=json, wide=wide, md=md, pages=pages)


def _named(name: str, step: int | None, number: int | None) -> str:
    if number is not None:
        return f"{name}, pass {number}"
    return name if step is None else f"{name}, step {step}"
