"""Follow runs over commits: what changed, when, by which commit.

Examples:

  npuscope history runs   (a folder per commit with its runs; docs/howto/history.md)

  npuscope history runs --kernels attention --html history.html

  npuscope history sim --simulate . models/decode.py --since v1.0 -- --layers 4   (fills it without hardware)

With --simulate every commit since one is simulated in a folder of its own; your checkout is not touched. What is in the
folder already is not simulated again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from npuscope.base.errors import NpuscopeError
from npuscope.cli import options
from npuscope.cli.output import Command, after_dashes, check_outputs, progress_bar, show
from npuscope.explain.many import history_of, read_history
from npuscope.report.comparison import history as report
from npuscope.time.uncertainty import against

__all__ = ["Command", "command"]


def command(
    context: typer.Context,
    folder: Annotated[
        str | None,
        typer.Argument(help="The history: a folder or a file of JSON lines; with --simulate named after the program."),
    ] = None,
    simulate: Annotated[
        tuple[str, str] | None, typer.Option(metavar="REPO FILE", help="Simulate this program at every commit.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="The first commit to simulate.")] = None,
    device: options.ProgramDevice = "",
    jobs: Annotated[int | None, typer.Option(min=1, help="Commits at a time; all cores unless given.")] = None,
    threshold: Annotated[
        float, typer.Option(min=0, help="Of simulated runs, which have no noise: list changes above this share.")
    ] = 0.001,
    kernels: options.Kernels = None,
    html: options.Html = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    arguments = after_dashes(context)
    if simulate is None:
        if folder is None:
            raise NpuscopeError("no history is named", remedy="Name its folder, or give --simulate REPO FILE.")
        if since is not None or arguments:
            raise NpuscopeError(
                "--since and arguments after -- go with --simulate", remedy="Give --simulate REPO FILE."
            )
    else:
        if since is None:
            raise NpuscopeError("--simulate needs a first commit", remedy="Name it with --since.")
        folder = folder or f"{Path(simulate[1]).stem}_history"
    check_outputs([folder], html)
    with progress_bar():
        if simulate is not None and since is not None:
            from npuscope.answer.commits import simulate_commits
            from npuscope.time.run import chip_to_time

            chip_to_time(device)  # refused before anything is unpacked
            simulate_commits(*simulate, since, Path(folder), arguments, device, jobs)
        runs = read_history(folder)
        found = history_of(runs.commits, runs.exact, threshold, kernels, against)
    parts = partial(report, folder, found)

    def page() -> str:
        from npuscope.lab.runs import parts_page

        return parts_page("History", "history", parts())

    show(parts, found.as_dict, json=json, wide=wide, pages={html: page})
