"""Judge tile programs: do they run, right, safe, and how fast.

Do they run, are they right, do they compile, are they safe, how fast are they and why.

Examples:

  npuscope judge layer.py

  npuscope judge candidates/*.py --json --budget 4096 --seconds 60   (small answers for agents and tuners)

  npuscope judge new.py --baseline old.py --md comment.md -- --max-seq 4096   (a comment for a pull request)

  npuscope judge candidates/*.py --results judged.jsonl   (again: only what is missing)

Each candidate runs in a process of its own with a limit of time and memory: one that loops, crashes, exits or eats
memory costs its own answer. Exit code 0: all are good. 1: one is not (with --fail-slower also one that is slower than
the baseline). 2: the command cannot be carried out, as where there is no such file. howto/judge.md has the verdicts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuscope.answer.judge import How, judge_all
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.base.jobs import GIB, Limits
from npuscope.cli import options
from npuscope.cli.output import Command, after_dashes, check_outputs, progress_bar, settings_of, show
from npuscope.models import program_file
from npuscope.report.judge import judge as report
from npuscope.report.judge import judge_data, judge_sarif

__all__ = ["Command", "command"]


def command(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(help="Tile programs: Python files.", metavar="FILE...")],
    baseline: Annotated[str | None, typer.Option(help="Compare each with this program.")] = None,
    setting: options.Set = None,
    device: options.ProgramDevice = "",
    program: options.ProgramNumber = None,
    runtime: options.Runtime = "",
    ring_slots: options.RingSlots = None,
    golden: Annotated[
        bool, typer.Option("--golden/--no-golden", help="Also compute, and compare with the program's golden.")
    ] = True,
    seconds: Annotated[float, typer.Option(min=0.1, help="Longest time of each run of a candidate.")] = 120.0,
    memory: Annotated[float, typer.Option(min=0.01, help="Most memory of a candidate, in GiB.")] = 4.0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Candidates at a time; all cores unless given.")] = None,
    engine: options.Engine = "processes",
    results: Annotated[
        str | None, typer.Option(help="Keep answers here (JSON lines); those that stand there are not run.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=512, help="Most bytes of an answer in JSON; `cut` says what was left out.")
    ] = None,
    fail_slower: Annotated[
        bool, typer.Option("--fail-slower", help="Exit 1 also where one is surely slower than the baseline.")
    ] = False,
    md: options.Md = None,
    sarif: options.Sarif = None,
    json: options.Json = False,
) -> None:
    if fail_slower and baseline is None:
        raise NpuscopeError("--fail-slower compares with a --baseline", remedy="Name one.")
    every = [*files, *([baseline] if baseline is not None else [])]
    for file in every:
        program_file(file)
    check_outputs(every, results, md, sarif)
    settings = tuple(settings_of(setting or []).items())
    alike = (after_dashes(context), settings, device, program, ring_slots)
    requests = [Request(str(Path(file).resolve()), *alike, name=file, runtime=runtime) for file in every]
    base = None if baseline is None else requests.pop()
    limits = Limits(seconds, round(memory * GIB))
    how = How(golden, limits, None if results is None else Path(results), engine, jobs)
    with progress_bar():
        answers = judge_all(requests, base, how)
    paths = [request.file for request in requests]
    show(
        lambda: report(answers),
        lambda: judge_data(answers, budget),
        json=json,
        indent=2 if budget is None else None,  # with a budget every byte counts
        md=md,
        pages={sarif: lambda: judge_sarif(answers, paths)},
    )
    slower = fail_slower and any(one.versus is not None and one.versus.verdict == "slower" for one in answers)
    if slower or not all(answer.is_good for answer in answers):
        raise typer.Exit(1)
