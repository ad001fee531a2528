"""Run a tile program on the CPU: are its numbers right?

PyPTO's names are served where it is not installed. A file of tests (test_*.py) runs under pytest, a notebook (.ipynb)
cell by cell.

Examples:

  npuscope run softmax.py

  npuscope run decode_layer.py -- --max-seq 4096   (arguments after -- are the program's)

  npuscope run decode_layer.py --set LAYERS=2   (a smaller one, where the whole takes too long)

  npuscope run decode_layer.py --trace-values   (where NaN, infinity and overflow come from)

  npuscope run decode_layer.py --against HEAD --html difference.html   (tensor by tensor beside the last commit)

Exit code 1 where the program's golden check fails, it asserts a number that is wrong, or a tensor differs from the
version that it is held against.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from npuscope.cli import options
from npuscope.cli.output import check_outputs, progress_bar, settings_of, show
from npuscope.explain.work import area_rules
from npuscope.report.program import run as report
from npuscope.table.formats import many
from npuscope.tile.graph.outputs import count_graphs
from npuscope.tile.graph.task_graph import task_graph
from npuscope.tile.script.run import ScriptRun, run_script

if TYPE_CHECKING:
    from npuscope.tile.golden.traced import ValueTrace


def command(
    file: options.Program,
    arguments: options.Arguments = None,
    setting: options.Set = None,
    trace_values: Annotated[
        bool,
        typer.Option(
            "--trace-values", help="Every tensor in program order, and where NaN, infinity and overflow come from."
        ),
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(help="Compare each tensor with another file's, or with this file at a git revision."),
    ] = None,
    html: options.Html = None,
    md: options.Md = None,
    areas: options.Areas = None,
    json: options.Json = False,
) -> None:
    check_outputs([file], html, md)
    rules, settings = area_rules(areas), settings_of(setting or [])
    traced = trace_values or against is not None or html is not None
    with progress_bar():
        if traced:
            from npuscope.tile.run.execute import watched
        with watched() if traced else nullcontext():
            run = run_script(file, arguments or [], "values", echo=not json, settings=settings)
        traces = _traces(file, run, arguments or [], settings, against) if traced else ()
    graphs = [task_graph(recording) for recording in run.recordings]
    counts = count_graphs(list(run.recordings), graphs, rules)
    failures = [*(result.error for result in run.results if not result.passed), *filter(None, [run.failure])]
    notices = [notice.message for recording in run.recordings for notice in recording.notices]
    if not json:
        print()  # after what the program printed
    data = {"passed": run.passed, "failures": failures, **counts.as_dict(), "notices": notices}
    if traced:
        from npuscope.lab.runs import parts_page
        from npuscope.report.precision import traced as report_values

        data["values"] = [trace.as_dict() for trace in traces]
        parts = partial(report_values, file, traces)
        pages = {html: lambda: parts_page(f"Values of {file}", "values", parts())}
        show(parts, data, json=json, md=md, pages=pages)
    else:
        show(partial(report, file, run, counts), data, json=json, md=md)
    if run.failure:
        print(f"npuscope: {run.failure}", file=sys.stderr)
    differs = against is not None and any(trace.first is not None for trace in traces)
    if run.passed is False or differs:
        raise typer.Exit(run.exit_code or 1)


def _traces(
    file: str, run: ScriptRun, arguments: Sequence[str], settings: Mapping[str, str], against: str | None
) -> tuple[ValueTrace, ...]:
    from npuscope.base.errors import BadInput
    from npuscope.tile.golden.traced import traces
    from npuscope.tile.script.versions import other_version

    if against is None:
        return traces(run.runs, run.results, None, "")
    with other_version(file, against) as other:
        there = run_script(other, arguments, "values", echo=False, settings=settings, golden=False)
        if len(there.runs) != len(run.runs):  # as where a check that failed ended one of them
            what = f"{many(len(run.runs), 'program')} ran here, {len(there.runs)} in {against}"
            if not run.runs or not there.runs:
                raise BadInput(what, path=file, remedy="Only what both ran can be compared.")
            print(f"npuscope: {what}: only what both ran is compared", file=sys.stderr)
        return traces(run.runs, run.results, there.runs, against)
