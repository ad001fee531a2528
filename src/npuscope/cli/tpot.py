"""Time per token of a decode program over a growing context.

Simulated decode steps: ms per token, tasks, run and scheduling time; tasks and time by area.

Examples:

  npuscope tpot qwen3-14b

  npuscope tpot qwen3-14b-a8w8 --batch 16 --context 4096 --tokens 48 -- --dual-gate-up-proj

  npuscope tpot qwen3-14b --measured dfx_outputs   (predicted beside measured, in the parts of `npuscope step`)

  npuscope tpot my_decode.py --context 1024 --json -- --layers 4   (arguments after -- are the program's)

  npuscope tpot my_decode.py --ep 8   (over 8 ranks, if the program takes --ep; the one launched last is told)

MODEL is a tile program that makes one decode step and takes --batch and --context, or qwen3-14b, qwen3-14b-a8w8.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from npuscope.cli import options
from npuscope.cli.output import progress_bar, show
from npuscope.explain.step import beside_measured, steps_at
from npuscope.explain.work import area_rules
from npuscope.forward.llm.tpot import Decoding, program_file, tpot
from npuscope.report.predicted import tpot as report
from npuscope.time.run import chip_to_time


def command(
    model: Annotated[str, typer.Argument(help="A tile program of one decode step, or a model's short name.")],
    arguments: options.Arguments = None,
    batch: Annotated[int, typer.Option(help="Rows that decode together.")] = 16,
    context: Annotated[int, typer.Option(help="Tokens in the cache of every row before the first step.")] = 4096,
    tokens: Annotated[int, typer.Option(help="Steps; each makes the context longer by one.")] = 48,
    tp: Annotated[int | None, typer.Option(min=1, help="The program's own --tp: all its ranks are simulated.")] = None,
    ep: Annotated[int | None, typer.Option(min=1, help="The program's own --ep: all its ranks are simulated.")] = None,
    device: options.Device = "ascend910b1",
    measured: Annotated[
        str | None, typer.Option(metavar="PATH", help="Ranks, host logs or a server's profile to hold it against.")
    ] = None,
    areas: options.Areas = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    decoding, file = Decoding(batch, context, tokens), program_file(model)
    layout = [word for name, n in (("--tp", tp), ("--ep", ep)) if n is not None for word in (name, str(n))]
    arguments = [*(arguments or []), *layout]
    rules = area_rules(areas)
    with progress_bar():
        result = replace(tpot(file, arguments, decoding, chip_to_time(device), rules), model=model)
        beside = None
        if measured is not None:
            beside = beside_measured(steps_at(Path(measured)), round(result.mean("rank_ms") * 1e6), result.device_time)

    def data() -> dict[str, object]:
        return {**result.as_dict(), **({} if beside is None else {"measured": beside.rows()})}

    show(partial(report, result, beside), data, json=json, wide=wide)
