"""Read any capture and write it in another format.

The format is chosen by the ending of OUT.

Examples:

  npuscope convert kernel_details.csv step.pftrace   (for ui.perfetto.dev)

  npuscope convert trace.json.gz trace.npu           (npuscope's folder, opens at once)

  npuscope convert run/tracr run.json.gz             (Chrome JSON)

  npuscope convert run.npu run.simpler               (the folder that simpler's own tools open)
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuscope.cli import options
from npuscope.cli.output import check_outputs, print_json, progress_bar, sources
from npuscope.table.formats import many, printable
from npuscope.trace import read
from npuscope.trace.formats import check_target


def command(
    path: options.Capture,
    out: Annotated[str, typer.Argument(help="Where to write; `npuscope formats` lists the endings.")],
    format: Annotated[
        str | None,
        typer.Option("--format", help="Format of OUT, if its ending does not say so: one `npuscope formats` lists."),
    ] = None,
    json: options.Json = False,
) -> None:
    target = check_target(out, format)  # a wrong name is an error before the work, not after
    check_outputs([path], out)
    with progress_bar():
        trace = read(path)
        check_outputs(sources(trace, path), out)
        left_out = trace.write(out, target)
    if json:
        result = {
            "from": trace.meta.format,
            "to": target,
            "out": out,
            "slices": trace.slices.height,
            "samples": trace.counters.height,
            "left_out": dict(left_out),
        }
        print_json(result)
        return
    size = f"{many(trace.slices.height, 'slice')}, {many(trace.edges.height, 'edge')}"
    if trace.counters.height:
        size += f", {many(trace.counters.height, 'sample')} of counters"
    print(f"{printable(path)} ({trace.meta.format}) -> {printable(out)} ({target}): {size}")
    for reason, count in left_out.items():
        print(f"  no room for {count:>9,}  {printable(reason)}")
