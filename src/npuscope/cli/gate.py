"""Hold captures against a budget, for continuous integration.

A row per limit; --md writes it for a pull request. Exit code 0: every limit is kept, or is broken by no more than noise
(undecided). 1: a limit is broken. 2: something cannot be read. 3: with --strict, a limit is undecided.

Examples:

  npuscope gate run --budget budget.toml

  npuscope gate run1 run2 run3 --budget budget.toml --baseline main1 --baseline main2 --baseline main3

  npuscope gate folder_of_runs --budget budget.toml --baseline other_folder --md comment.md

  npuscope gate run1 run2 run3 --history runs   (against the runs since the last change; docs/howto/history.md)

Three and more captures of the same run measure the noise; with fewer the budget's own noise counts (docs/howto/ci.md).
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from npuscope.base.errors import NpuscopeError
from npuscope.cli import options
from npuscope.cli.output import check_outputs, progress_bar, show
from npuscope.explain.many import gate, history_of, read_budget, read_history, read_runs
from npuscope.explain.many.gate import Gate, hold_against
from npuscope.explain.many.runs import run_paths
from npuscope.report.comparison import gate as report
from npuscope.table.parts import as_markdown
from npuscope.trace import read


def command(
    paths: Annotated[
        list[str] | None, typer.Argument(help="Captures of the run, or folders of them.", metavar="TRACE…")
    ] = None,
    budget: Annotated[str | None, typer.Option(help="The budget, a TOML file.")] = None,
    baseline: Annotated[
        list[str] | None, typer.Option(help="A capture to compare with, or a folder of them; may be repeated.")
    ] = None,
    history: Annotated[
        str | None,
        typer.Option(help="Instead of a budget: a history (`npuscope history`). Without captures its newest commit."),
    ] = None,
    allow: Annotated[float, typer.Option(min=0, help="With --history: a slowdown that passes, as a share.")] = 0.01,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 3 where a limit is undecided.")] = False,
    md: options.Md = None,
    json: options.Json = False,
) -> None:
    paths, baseline = paths or [], baseline or []
    if (budget is None) == (history is None):
        raise NpuscopeError("a gate needs a budget or a history", remedy="Give one of --budget and --history.")
    if history is not None and baseline:
        raise NpuscopeError("--history is the baseline", remedy="Leave --baseline out.")
    check_outputs([*paths, *baseline, *filter(None, (budget, history))], md)
    with progress_bar():
        result = _by_budget(paths, budget, baseline) if budget is not None else _by_history(paths, history or "", allow)
    parts = partial(report, result)
    show(parts, result.as_dict, json=json, pages={md: lambda: as_markdown(parts())})
    if not result.passed:
        raise typer.Exit(1)
    if strict and result.undecided:
        raise typer.Exit(3)


def _by_budget(paths: list[str], budget: str, baseline: list[str]) -> Gate:
    if not paths:
        raise NpuscopeError("no capture to hold against the budget", remedy="Name one.")
    limits = read_budget(budget)
    run, before = ([read(one) for path in side for one in run_paths(path)] for side in (paths, baseline))
    return gate(run, limits, before)


def _by_history(paths: list[str], history: str, allow: float) -> Gate:
    """The captures against all of the history, or its newest commit against those before."""
    commits, exact = read_history(history)
    if paths:
        return hold_against(history_of(commits, exact), read_runs(paths), allow)
    ran = [commit for commit in commits if commit.runs]
    if len(ran) < 2:
        raise NpuscopeError("the history has no commit before its newest", remedy="Name captures to hold against it.")
    return hold_against(history_of(ran[:-1], exact), ran[-1].runs, allow)
