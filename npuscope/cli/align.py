"""Lay a predicted forward pass beside a measured one, kernel by kernel: matched, missing, extra, and every error.

PREDICTED is an npuscope prediction, a Chrome trace (TensorCast's, or any) or a CSV with a kernel and a time column;
MEASURED a kernel table or another capture of one pass.

Examples:

  npuscope align predicted.json kernel_details.csv --step 5

  npuscope align model.csv pass.csv --time-column latency --unit us --md alignment.md

  npuscope align predicted.json pass.csv --map fused_qkv=MatMulV2   (a kernel that has another name there)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from npuscope.cli.output import HtmlFile, JsonFlag, MdFile, print_json, print_text
from npuscope.cli.progress_bar import progress_bar

if TYPE_CHECKING:
    from npuscope.trace import Trace


def command(
    predicted: Annotated[str, typer.Argument(help="The prediction.")],
    measured: Annotated[str, typer.Argument(help="The capture that holds the measured pass.")],
    step: Annotated[int | None, typer.Option(help="The step of MEASURED to take.")] = None,
    predicted_step: Annotated[int | None, typer.Option(help="The step of PREDICTED, where it has several.")] = None,
    map: Annotated[list[str] | None, typer.Option(help="A predicted kernel and its measured name, as a=b.")] = None,
    process: Annotated[str | None, typer.Option(help="The model's process, where a trace has several.")] = None,
    kernel_column: Annotated[str | None, typer.Option(help="Of PREDICTED, a CSV: the column of kernels.")] = None,
    time_column: Annotated[str | None, typer.Option(help="Of PREDICTED, a CSV: the column of times.")] = None,
    unit: Annotated[str | None, typer.Option(help="Of that column: ns, us, ms or s.")] = None,
    html: HtmlFile = None,
    md: MdFile = None,
    json: JsonFlag = False,
) -> None:
    from npuscope.cli.output import check_outputs, names_of, pairs_of, reproduce, write_reports
    from npuscope.forward.align.alignment import align
    from npuscope.forward.align.plain_csv import Wanted, read_side
    from npuscope.report.align_page import align_page
    from npuscope.report.align_text import align_markdown, align_text

    check_outputs([predicted, measured], html, md)
    pairs = pairs_of(map or [], "--map")
    chosen = zip(names_of([predicted, measured]), (predicted_step, step), strict=True)
    ours_name, theirs_name = (name if number is None else f"{name}, step {number}" for name, number in chosen)
    both = (ours_name, theirs_name)
    with progress_bar():
        ours = one_pass(read_side(predicted, Wanted(kernel_column, time_column, unit)), predicted_step, predicted,
                        "--predicted-step")  # fmt: skip
        theirs = one_pass(read_side(measured), step, measured, "--step")
        result = align(ours, theirs, pairs, process=process)
        written = write_reports(
            {html: lambda: align_page(both, result), md: lambda: align_markdown(both, result, reproduce())}
        )
    if json:
        print_json(result.as_dict())
    else:
        print_text(align_text(both, result), written)


def one_pass(trace: Trace, step: int | None, path: str, option: str) -> Trace:
    """The one forward pass of a trace that is meant: the place for every way to choose one."""
    from npuscope.errors import NpuscopeError

    steps = trace.slices["step"].drop_nulls().unique().sort().to_list()
    listed = ", ".join(str(n) for n in steps[:20]) + (f" and {len(steps) - 20} more" if len(steps) > 20 else "")
    if step is not None:
        if step not in steps:
            told = f"It has {listed}." if steps else "It marks no steps."
            raise NpuscopeError(f"no step {step}", path=path, remedy=told)
        return trace.select(step=step)
    if len(steps) > 1:
        what = f"it holds {len(steps)} steps: {listed}"
        raise NpuscopeError(what, path=path, remedy=f"Choose one forward pass with {option} N.")
    return trace
