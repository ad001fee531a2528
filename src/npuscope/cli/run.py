"""Run a tile program on the CPU: are its numbers right?

PyPTO's names are served where it is not installed.

Examples:

  npuscope run softmax.py

  npuscope run decode_layer.py -- --max-seq 4096   (arguments after -- are the program's)

  npuscope run decode_layer.py --json

Exit code 1 where the program's golden check fails or it asserts a number that is wrong.
"""

from __future__ import annotations

import sys
from functools import partial

import typer

from npuscope.cli.output import AreasFile, JsonFlag, ProgramArguments, ProgramFile, progress_bar, show
from npuscope.explain.work import area_rules
from npuscope.report.program import run as report
from npuscope.tile.graph.outputs import count_graphs
from npuscope.tile.graph.task_graph import task_graph
from npuscope.tile.script.run import run_script


def command(
    file: ProgramFile,
    arguments: ProgramArguments = None,
    areas: AreasFile = None,
    json: JsonFlag = False,
) -> None:
    rules = area_rules(areas)
    with progress_bar():
        run = run_script(file, arguments or [], "values", echo=not json)
    graphs = [task_graph(recording) for recording in run.recordings]
    counts = count_graphs(list(run.recordings), graphs, rules)
    failures = [*(result.error for result in run.results if not result.passed), *filter(None, [run.failure])]
    notices = [notice.message for recording in run.recordings for notice in recording.notices]
    if not json:
        print()  # after what the program printed
    data = {"passed": run.passed, "failures": failures, **counts.as_dict(), "notices": notices}
    show(partial(report, file, run, counts), data, json=json)
    if run.failure:
        print(f"npuscope: {run.failure}", file=sys.stderr)
    if run.passed is False:
        raise typer.Exit(run.exit_code or 1)
