"""Where the time of a step goes, from the host to the chip.

Examples:

  npuscope step dfx_outputs   (all ranks, with the host's logs beside them)

  npuscope step host.4711.log --run 22

  npuscope step server.log --json

A step is a call of a program on every rank. Its time is split into bind, launch, the device's phases, waiting for later
ranks, copies back and what is between them: parts of one level add up to the part above.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from npuscope.cli.output import JsonFlag, MdFile, check_outputs, names_of, progress_bar, show
from npuscope.explain.step import explain_steps
from npuscope.report.captures import step as report
from npuscope.trace.readers.dispatches import steps_of_root
from npuscope.trace.readers.host_log import HostLog


def command(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A folder with rank*/d*/ and logs, or a log.")],
    run: Annotated[int | None, typer.Option(min=0, help="Which run; the last one that is whole otherwise.")] = None,
    md: MdFile = None,
    json: JsonFlag = False,
) -> None:
    check_outputs([path], md)
    (name,) = names_of([path])
    with progress_bar():
        if Path(path).is_dir():
            log, ranks, peers = steps_of_root(Path(path))
            found = explain_steps(log, run, ranks, peers)
        else:
            found = explain_steps(HostLog().read(Path(path)), run)
    show(partial(report, name, found), found.as_dict, json=json, md=md)
