"""Find the forward passes of a capture: layers, disturbances.

Cuts them out of a capture or of a profiler's folder of many ranks; lists and exports them.

Examples:

  npuscope forward kernel_details.csv                     (passes, layers, positions)

  npuscope forward kernel_details.csv --list --json

  npuscope forward kernel_details.csv --select 3 --out decode_16tok.csv

  npuscope forward prof/ --out passes/ --engine ray       (every rank; clean passes only)

  npuscope forward kernel_details.csv --perfetto layers.pftrace

Passes that are incomplete or disturbed are exported only if --select names them (docs/howto/forward.md).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from npuscope.base.errors import NpuscopeError
from npuscope.cli import options
from npuscope.cli.output import check_outputs, progress_bar, show
from npuscope.explain.passes.export import metadata_of
from npuscope.explain.passes.ranks import ForwardOptions, forward, is_table
from npuscope.lab.runs import parts_page
from npuscope.report.forward import forward as report
from npuscope.table.formats import printable


def command(
    path: Annotated[str | None, typer.Argument(help="A capture, or a profiler root with many ranks.")] = None,
    profiler_root: Annotated[str | None, typer.Option(help="The same as PATH.")] = None,
    list_only: Annotated[bool, typer.Option("--list", help="Only list passes: no statistics of layers.")] = False,
    select: Annotated[
        str | None,
        typer.Option(
            help="Passes to show, export: 3, 2-5, all, complete, clean, prefill, decode, draft, training; with commas."
        ),
    ] = None,
    window: Annotated[str, typer.Option(help="full, anchor (first to last attention) or capture.")] = "full",
    out: Annotated[str | None, typer.Option("-o", "--out", help="A new folder, or a .csv for one pass.")] = None,
    anchor: Annotated[str | None, typer.Option(help="The kernel every layer runs, a regular expression.")] = None,
    perfetto: Annotated[
        str | None, typer.Option(help="Also write the trace with tracks for passes and layers here (.pftrace, .json).")
    ] = None,
    engine: Annotated[
        str, typer.Option(help="Many ranks: processes, or ray (the extra `ray`, RAY_ADDRESS).")
    ] = "processes",
    jobs: Annotated[int | None, typer.Option(min=1, help="Ranks at a time; all cores unless given.")] = None,
    html: options.Html = None,
    md: options.Md = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    if bool(path) == bool(profiler_root):
        raise NpuscopeError("name a capture or a profiler root, once")
    place = path or profiler_root or ""
    beside = str(metadata_of(Path(out))) if out and is_table(Path(out)) else None
    check_outputs([place], out, perfetto, html, md, beside)
    wanted = ForwardOptions(
        anchor,
        not list_only and (out is None or json or bool(html or md)),
        tuple(word.strip() for word in select.split(",")) if select else None,
        window,
        Path(out) if out else None,
        Path(perfetto) if perfetto else None,
    )
    with progress_bar():
        result = forward(place, wanted, engine, jobs)
    parts = partial(report, result)
    pages = {html: lambda: parts_page("Forward passes", "passes", parts())}
    show(parts, result.as_dict, json=json, wide=wide, md=md, pages=pages, written=[perfetto])
    if out is not None and not json:
        tables = sum(".csv" in name for name in result.written)
        print(f"wrote {tables} {'pass' if tables == 1 else 'passes'} to {printable(out)}")
