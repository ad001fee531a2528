"""Where the time of a step goes: server, host, chips, rest.

Examples:

  npuscope step dfx_outputs   (all ranks, with the host's logs beside them)

  npuscope step host.4711.log --run 22

  npuscope step dfx_outputs --profile serving_out --accepted 2.4   (the server's steps around the calls)

  npuscope step server.log --json

A step is a call of a program on every rank, or with pypto-serving's profile a step of the server. Its time is split
into schedule, queue, bind, copies, launch, the device's phases, waiting for later ranks, output and what is between
them: parts of one level add up to the part above. Mean and tail are over all steps.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from npuscope.cli import options
from npuscope.cli.output import check_outputs, names_of, progress_bar, show
from npuscope.explain.step import steps_at
from npuscope.report.captures import step as report


def command(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A folder with rank*/d*/ and logs, a log, or a server's profile.")
    ],
    run: Annotated[
        int | None, typer.Option(min=0, help="Which run, or step of a profile; the last whole one otherwise.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="PATH", help="pypto-serving's profile of the same run: folder or file.")
    ] = None,
    accepted: Annotated[
        float | None, typer.Option(min=0.01, help="Tokens that a request gets per step, where several are accepted.")
    ] = None,
    md: options.Md = None,
    json: options.Json = False,
) -> None:
    check_outputs([path, *([profile] if profile else [])], md)
    (name,) = names_of([path])
    with progress_bar():
        found = steps_at(Path(path), run, None if profile is None else Path(profile), accepted)
    show(partial(report, name, found), found.as_dict, json=json, md=md)
