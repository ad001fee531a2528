"""Hold captures against a budget, for continuous integration.

Prints a Markdown table for a pull request. Exit code 0: every limit is kept, or is broken by no more than noise
(undecided). 1: a limit is broken. 2: something cannot be read. 3: with --strict, a limit is undecided.

Examples:

  npuscope gate run --budget budget.toml

  npuscope gate run1 run2 run3 --budget budget.toml --baseline main1 --baseline main2 --baseline main3

  npuscope gate folder_of_runs --budget budget.toml --baseline other_folder --md comment.md

Three and more captures of the same run measure the noise; with fewer the budget's own noise counts (docs/howto/ci.md).
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuscope.cli.output import JsonFlag, MdFile, print_json
from npuscope.cli.progress_bar import progress_bar


def command(
    paths: Annotated[list[str], typer.Argument(help="Captures of the run, or folders of them.", metavar="TRACE…")],
    budget: Annotated[str, typer.Option(help="The budget, a TOML file.")],
    baseline: Annotated[
        list[str] | None, typer.Option(help="A capture to compare with, or a folder of them; may be repeated.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 where a limit is undecided.")] = False,
    md: MdFile = None,
    json: JsonFlag = False,
) -> None:
    from npuscope.cli.output import check_outputs, write_texts
    from npuscope.report.document import as_markdown
    from npuscope.report.explain import gate as report
    from npuscope.statistics import gate, read_budget
    from npuscope.statistics.runs import run_paths
    from npuscope.trace import read

    check_outputs([*paths, *(baseline or []), budget], md)
    limits = read_budget(budget)
    with progress_bar():
        run, before = ([read(one) for path in side for one in run_paths(path)] for side in (paths, baseline or []))
        result = gate(run, limits, before)
    text = as_markdown(report(result))
    if md is not None:
        write_texts({md: text})
    if json:
        print_json(result.as_dict())
    else:
        print(text, end="")
    if not result.passed:
        raise typer.Exit(1)
    if strict and result.undecided:
        raise typer.Exit(3)
