"""Replay a trace's task graph with a change: the new wall time, between which bounds, and the replay's own error.

Examples:

  npuscope whatif run/chip_swimlane_records.json --merge 'gate_proj+up_proj'

  npuscope whatif run --scale fa_fused=0.5 --dispatch-cost 0.5

  npuscope whatif run --halve down_proj --remove silu --cores AIC=48

Kernels are regular expressions that match the whole name. --halve makes half as many tasks, each with the work of two.
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuscope.cli.output import CapturePath, JsonFlag, print_json
from npuscope.cli.progress_bar import progress_bar


def command(
    path: CapturePath,
    merge: Annotated[list[str] | None, typer.Option(help="Kernels that become one task, as a+b.")] = None,
    scale: Annotated[list[str] | None, typer.Option(help="A kernel and the factor on its time, as k=0.5.")] = None,
    halve: Annotated[list[str] | None, typer.Option(help="A kernel with half as many tasks.")] = None,
    remove: Annotated[list[str] | None, typer.Option(help="A kernel that is not there.")] = None,
    cores: Annotated[list[str] | None, typer.Option(help="Another number of cores, as AIC=48.")] = None,
    dispatch_cost: Annotated[float, typer.Option(help="Factor on every wait for the scheduler.")] = 1.0,
    json: JsonFlag = False,
) -> None:
    from npuscope.analysis import Change, whatif
    from npuscope.cli.output import counts_of, numbers_of
    from npuscope.trace import read

    change = Change(
        scale=numbers_of(scale or [], "--scale"),
        merge=[tuple(name.strip() for name in names.split("+")) for names in merge or []],
        halve=halve or [],
        remove=remove or [],
        cores=counts_of(cores or [], "--cores"),
        dispatch_cost=dispatch_cost,
    )
    with progress_bar():
        result = whatif(read(path), change)
    if json:
        print_json(result.as_dict())
    else:
        print(result)
