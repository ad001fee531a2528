"""What a collective between ranks costs, and what bounds it.

Its time with an interval, what bounds it (steps, barrier, issue rate, link), and a table over sizes and ranks.

Examples:

  npuscope collective all_to_all_v --ranks 8 --bytes 65536

  npuscope collective allreduce --ranks 2 --bytes 262144 --form host --dtype FP32 --cores 8

  npuscope collective allreduce --bytes 1048576 --form hccl --html allreduce.html

--bytes are those of a rank (allreduce, allgather, broadcast, reduce_scatter) or for each peer (all_to_all,
all_to_all_v, whose kernel sends every peer the whole capacity).
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from npuscope.base.errors import BadInput
from npuscope.chip.devices import load
from npuscope.cli import options
from npuscope.cli.output import check_outputs, show
from npuscope.lab.runs import parts_page
from npuscope.report.collective import collective, collective_data
from npuscope.time.ranks.collective import Collective, price


def command(
    op: Annotated[str, typer.Argument(help="all_to_all_v, all_to_all, allgather, allreduce, broadcast, …")],
    ranks: Annotated[int, typer.Option(min=2, max=1024, help="Ranks that take part.")] = 2,
    bytes_: Annotated[
        int | None, typer.Option("--bytes", min=0, help="Of a rank, or for each peer; 65536 if not given.")
    ] = None,
    cores: Annotated[int, typer.Option(min=1, help="Vector cores of each rank that share the work.")] = 1,
    form: Annotated[
        str, typer.Option(help="builtin (a task), host (a program), composite (inside a kernel), ring, hand, hccl.")
    ] = "builtin",
    dtype: Annotated[
        str, typer.Option(help="Of the elements, of which a builtin moves 256 at a time: FP32 if reduced, else INT8.")
    ] = "",
    device: options.Device = "ascend910b2",
    html: options.Html = None,
    md: options.Md = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    check_outputs([], html, md)
    if op == "barrier" and (bytes_ is not None or dtype):
        raise BadInput("a barrier moves no bytes", remedy="Leave --bytes and --dtype out.")
    size = 0 if op == "barrier" else 65536 if bytes_ is None else bytes_
    found = price(Collective(op, ranks, size, cores, form, dtype.upper()), load(device))
    parts = partial(collective, found)
    pages = {html: lambda: parts_page(f"{op} over {ranks} ranks", "collective", parts())}
    show(parts, partial(collective_data, found), json=json, wide=wide, md=md, pages=pages)
