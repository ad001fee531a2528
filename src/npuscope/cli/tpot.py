"""Time per token of a decode program over a growing context.

Simulated decode steps: ms per token, tasks, run and scheduling time, groups by area.

Examples:

  npuscope tpot qwen3-14b

  npuscope tpot qwen3-14b-a8w8 --batch 16 --context 4096 --tokens 48 -- --dual-gate-up-proj

  npuscope tpot my_decode.py --context 1024 --json -- --layers 4   (arguments after -- are the program's)

MODEL is a tile program that makes one decode step and takes --batch and --context, or qwen3-14b, qwen3-14b-a8w8.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from npuscope.cli.output import AreasFile, DeviceName, JsonFlag, ProgramArguments, WideFlag, progress_bar, show
from npuscope.explain.work import area_rules
from npuscope.forward.llm.tpot import Decoding, areas_beside, program_file, tpot
from npuscope.report.predicted import tpot as report
from npuscope.time.run import chip_to_time


def command(
    model: Annotated[str, typer.Argument(help="A tile program of one decode step, or a model's short name.")],
    arguments: ProgramArguments = None,
    batch: Annotated[int, typer.Option(help="Rows that decode together.")] = 16,
    context: Annotated[int, typer.Option(help="Tokens in the cache of every row before the first step.")] = 4096,
    tokens: Annotated[int, typer.Option(help="Steps; each makes the context longer by one.")] = 48,
    device: DeviceName = "ascend910b1",
    areas: AreasFile = None,
    wide: WideFlag = False,
    json: JsonFlag = False,
) -> None:
    decoding, file = Decoding(batch, context, tokens), program_file(model)
    rules = area_rules(areas or areas_beside(file))
    with progress_bar():
        result = replace(tpot(file, arguments or [], decoding, chip_to_time(device), rules), model=model)
    show(partial(report, result), result.as_dict, json=json, wide=wide)
