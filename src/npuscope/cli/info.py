"""What a capture is and what is in it.

And what reading it dropped, repaired or marked.

Examples:

  npuscope info kernel_details.csv

  npuscope info run/tracr --json

  npuscope info profiler_root -o run.npu   (keep it as a folder that opens at once)
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from npuscope.cli import options
from npuscope.cli.output import check_outputs, progress_bar, show, sources
from npuscope.explain.doctor import symptoms_of
from npuscope.explain.summary import summarise
from npuscope.report.captures import info
from npuscope.table.formats import printable
from npuscope.trace import read
from npuscope.trace.formats import check_target


def command(
    path: options.Capture,
    json: options.Json = False,
    out: Annotated[str | None, typer.Option("-o", "--out", help="Also write the trace here.")] = None,
) -> None:
    target = None if out is None else check_target(out)
    check_outputs([path], out)
    with progress_bar():
        trace = read(path)
        if out is not None:
            check_outputs(sources(trace, path), out)
            trace.write(out, target)
        summary, symptoms = summarise(trace), symptoms_of(trace)
    show(partial(info, path, summary, symptoms), {**summary.as_dict(), "doctor": symptoms.verdict}, json=json)
    if out is not None and not json:
        print(f"wrote {printable(out)} ({target})")
