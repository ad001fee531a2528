"""Explain a trace: what bounds it, who waited, and for what.

Who was busy, who waited for whom, what scheduling cost, how work fans out, the critical path.

Examples:

  npuscope report run/chip_swimlane_records.json

  npuscope report run/tracr --kernels 'fa_fused|softmax'   (and what of its waiting is hidden)

  npuscope report kernel_details.csv --html report.html --md report.md

  npuscope report kernel_details.csv --step 5 --json

  npuscope report profiler_root   (every rank alone, then mean, worst, spread and who waits for whom)

  npuscope report profiler_root --rank 3
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from npuscope.cli import options
from npuscope.cli.output import check_outputs, names_of, progress_bar, read_steps, show
from npuscope.explain.ranks import Ranks, explain_ranks
from npuscope.report.captures import ranks as report_ranks
from npuscope.report.captures import report


def command(
    path: options.Capture,
    kernels: options.Kernels = None,
    step: options.Step = None,
    number: options.Pass = None,
    rank: options.Rank = None,
    html: options.Html = None,
    md: options.Md = None,
    wide: options.Wide = False,
    json: options.Json = False,
    areas: options.Areas = None,
    cores: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Cores of the device, where the capture does not tell.")
    ] = None,
) -> None:
    check_outputs([path], html, md)
    name = names_of([path])[0]
    with progress_bar():
        ranks = explain_ranks(read_steps(path, step, number, rank), kernels, areas, cores, drawn=html is not None)
        one = ranks.explained[0] if len(ranks.parts) == 1 else None
    pages = {html: lambda: _page(path, name, ranks)}
    parts = partial(report_ranks, path, name, ranks) if one is None else partial(report, path, name, one)
    show(parts, (one or ranks).as_dict, json=json, wide=wide, md=md, pages=pages)


def _page(path: str, name: str, ranks: Ranks) -> str:
    """The page; of several ranks with the waterfall of a step where the host's logs lie beside them."""
    from npuscope.lab.document import page
    from npuscope.lab.runs import ranks_document, report_document
    from npuscope.report.captures import step_parts

    if len(ranks.parts) == 1:
        return page(report_document(name, ranks.explained[0]))
    return page(ranks_document(name, ranks, step_parts(path, name)))
