"""Ask a trace anything, in SQL.

Examples:

  npuscope sql --examples   (questions and their queries)

  npuscope sql demo_out/run --tables   (every column with its unit)

  npuscope sql demo_out/run "SELECT kernel, SUM(dur) AS core_ns FROM slices GROUP BY kernel ORDER BY core_ns DESC"

  npuscope sql demo_out/run "SELECT reason, SUM(dur) AS idle_ns FROM gaps GROUP BY reason" --html idle.html

  npuscope sql demo_out/run - --csv rows.csv < query.sql

Times are whole nanoseconds; a number that the query calls NAME_ns is printed with the unit that fits. A query reads the
tables and nothing else, and is ended where it takes too long or too much memory.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Annotated

import typer

from npuscope.base.errors import NpuscopeError
from npuscope.base.jobs import GIB, Limits
from npuscope.cli import options
from npuscope.cli.output import check_outputs, names_of, progress_bar, read_steps, show, write_texts
from npuscope.explain.sql import EXAMPLES, LIMITS, run_query, schema_of
from npuscope.lab.runs import parts_page
from npuscope.report.sql import ROWS, csv_of, examples, tables
from npuscope.report.sql import sql as report


def command(
    path: Annotated[str | None, typer.Argument(metavar="CAPTURE", help="A file, or a folder.")] = None,
    text: Annotated[str | None, typer.Argument(metavar="QUERY", help="A SELECT; - reads it from here.")] = None,
    show_examples: Annotated[bool, typer.Option("--examples", help="Questions with their queries.")] = False,
    show_tables: Annotated[bool, typer.Option("--tables", help="Tables and columns, with units.")] = False,
    rank: options.Rank = None,
    top: Annotated[int, typer.Option(min=1, help="Rows shown.")] = ROWS,
    seconds: Annotated[float, typer.Option(min=0.1, help="Longest time of the query.")] = LIMITS.seconds,
    memory: Annotated[float, typer.Option(min=0.1, help="Most memory of the query, GiB.")] = LIMITS.bytes / GIB,
    csv: Annotated[str | None, typer.Option("--csv", help="Also write all rows here, as CSV.")] = None,
    html: options.Html = None,
    md: options.Md = None,
    json: options.Json = False,
) -> None:
    if show_examples:
        return show(examples, [one._asdict() for one in EXAMPLES], json=json)
    if show_tables:
        trace = None if path is None else read_steps(path, None, rank=rank)
        return show(partial(tables, trace), lambda: schema_of(trace).rows(), json=json)
    if path is None or text is None:
        raise NpuscopeError("sql takes a capture and a query", remedy="`npuscope sql --examples` has some.")
    check_outputs([path], csv, html, md)
    (name,) = names_of([path])
    with progress_bar():
        query = sys.stdin.read() if text == "-" else text
        found = run_query(read_steps(path, None, rank=rank), query, Limits(seconds, int(memory * GIB)))
    parts = partial(report, name, found, top)
    if csv is not None:
        write_texts({csv: csv_of(found)})
    pages = {html: lambda: parts_page(f"SQL over {name}", "sql", parts())}
    show(parts, found.as_dict, json=json, md=md, pages=pages, written=[csv])
