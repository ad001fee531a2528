"""The task graph of a tile program: who waits for whom, why.

Tasks, blocks and work per kernel, with no NPU.

Examples:

  npuscope graph decode_layer.py

  npuscope graph decode_layer.py --html graph.html

  npuscope graph decode_layer.py --deps deps.json --dot layer.dot --by kernel

  npuscope graph decode_layer.py --audit   (edges that could go, tasks that could be one, each simulated without it)

  npuscope graph decode_layer.py --values --json -- --max-seq 512   (arguments after -- are the program's)
"""

from __future__ import annotations

import sys
from enum import StrEnum
from functools import partial
from json import dumps
from pathlib import Path
from typing import Annotated

import typer

from npuscope.base.errors import NpuscopeError
from npuscope.cli import options
from npuscope.cli.output import check_outputs, progress_bar, show, write_texts
from npuscope.explain.work import area_rules
from npuscope.lab.program_runs import graph_page
from npuscope.report.program import graph as report
from npuscope.tile.graph.outputs import (
    check_timeless,
    choose_program,
    count_graphs,
    deps_document,
    name_map,
    timeless_trace,
)
from npuscope.tile.graph.outputs import dot as dot_text
from npuscope.tile.graph.task_graph import task_graph
from npuscope.tile.record.model import Mode
from npuscope.tile.script.run import run_script


class By(StrEnum):
    task = "task"
    kernel = "kernel"


def command(
    file: options.Program,
    arguments: options.Arguments = None,
    values: Annotated[
        bool, typer.Option("--values/--shapes", help="Compute (and check the golden), or only record shapes.")
    ] = False,
    program: options.ProgramNumber = None,
    deps: Annotated[
        str | None, typer.Option("--deps", help="Write the runtime's deps.json here and name_map.json beside it.")
    ] = None,
    dot: Annotated[str | None, typer.Option("--dot", help="Write the graph for Graphviz here.")] = None,
    by: Annotated[By, typer.Option("--by", help="What a node of the --dot file is.")] = By.task,
    trace: Annotated[str | None, typer.Option("--trace", help="Write a trace without times here (.npu).")] = None,
    audit: Annotated[
        bool, typer.Option("--audit", help="Judge its dependencies: what each that could go costs, simulated.")
    ] = False,
    device: options.ProgramDevice = "",
    runtime: options.Runtime = "",
    html: options.Html = None,
    areas: options.Areas = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    if audit:
        if deps or dot or trace or html:
            raise NpuscopeError(
                "--audit prints, and writes no graph", remedy="Leave --deps, --dot, --trace and --html."
            )
        _audit(file, tuple(arguments or ()), values, program, device, runtime, json)
        return
    names = None if deps is None else str(Path(deps).with_name("name_map.json"))
    check_outputs([file], deps, names, dot, trace, html)
    check_timeless(trace)
    rules = area_rules(areas)
    with progress_bar():
        run = run_script(file, arguments or [], "values" if values else "shapes")
    recordings = list(run.recordings)
    if program is not None or deps or dot or trace:
        recordings = [recordings[choose_program(recordings, program, file)]]
    graphs = [task_graph(recording) for recording in recordings]
    counts = count_graphs(recordings, graphs, rules)
    if deps or dot or trace:
        recording, graph = recordings[0], graphs[0]
        texts = {}
        if deps is not None and names is not None:
            texts[deps] = dumps(deps_document(recording, graph)) + "\n"
            texts[names] = dumps(name_map(recording), indent=2) + "\n"
        if dot is not None:
            texts[dot] = dot_text(recording, graph, by.value)
        write_texts(texts)
        if trace is not None:
            timeless_trace(recording, graph).write(trace)

    def html_page() -> str:
        drawn = [
            (recording, graph, count_graphs([recording], [graph], rules))
            for recording, graph in zip(recordings, graphs, strict=True)
        ]
        return graph_page(file, run.passed, drawn)

    show(
        partial(report, file, run.passed, counts),
        lambda: {"passed": run.passed, **counts.as_dict()},
        json=json,
        wide=wide,
        pages={html: html_page},
        written=(deps, names, dot, trace),
    )
    if run.failure:
        print(f"npuscope: {run.failure}", file=sys.stderr)
    if run.passed is False:
        raise typer.Exit(run.exit_code or 1)


def _audit(
    file: str, argv: tuple[str, ...], values: bool, program: int | None, device: str, runtime: str, json: bool
) -> None:
    """Only this needs the simulator."""
    from npuscope.answer.prediction import Prediction
    from npuscope.answer.request import Request
    from npuscope.report.check import audit as audit_report
    from npuscope.report.check import audit_data
    from npuscope.time.run import chip_to_time

    chip_to_time(device)
    mode: Mode = "values" if values else "shapes"
    one = Prediction(Request(file, argv, (), device, program, mode=mode, runtime=runtime))
    with progress_bar():
        show(partial(audit_report, one), partial(audit_data, one), json=json)
