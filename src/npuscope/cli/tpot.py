"""Time per token of a decode program over a growing context.

Simulated decode steps: ms per token, tasks, run and scheduling time, groups by area.

Examples:

  npuscope tpot qwen3-14b

  npuscope tpot qwen3-14b-a8w8 --batch 16 --context 4096 --tokens 48 -- --dual-gate-up-proj

  npuscope tpot models/qwen3_14b/decode.py --history tpot.jsonl --plot tpot.html

  npuscope tpot my_decode.py --context 1024 --json -- --layers 4   (arguments after -- are the program's)

MODEL is a tile program that makes one decode step and takes --batch and --context, or qwen3-14b, qwen3-14b-a8w8.
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuscope.cli.output import AreasFile, DeviceName, JsonFlag, WideFlag, print_json, print_report
from npuscope.cli.progress_bar import progress_bar


def command(
    model: Annotated[str, typer.Argument(help="A tile program of one decode step, or a model's short name.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The program's own arguments, after --.")] = None,
    batch: Annotated[int, typer.Option(help="Rows that decode together.")] = 16,
    context: Annotated[int, typer.Option(help="Tokens in the cache of every row before the first step.")] = 4096,
    tokens: Annotated[int, typer.Option(help="Steps; each makes the context longer by one.")] = 48,
    device: DeviceName = "ascend910b1",
    areas: AreasFile = None,
    history: Annotated[str | None, typer.Option(help="Append the result to this file, a JSON line each.")] = None,
    plot: Annotated[str | None, typer.Option(help="Draw the history over commits as a page here.")] = None,
    wide: WideFlag = False,
    json: JsonFlag = False,
) -> None:
    from dataclasses import replace
    from pathlib import Path

    from npuscope.base.errors import NpuscopeError
    from npuscope.cli.output import check_outputs, write_texts
    from npuscope.explain.many.files import append_line
    from npuscope.explain.work import area_rules
    from npuscope.forward.llm.programs import areas_beside, program_file
    from npuscope.forward.llm.tpot import Decoding, tpot
    from npuscope.forward.llm.tpot_history import check_place, entry_of, read_history
    from npuscope.lab.report_pages import parts_page
    from npuscope.report.predicted import history as drawn_history
    from npuscope.report.predicted import since
    from npuscope.report.predicted import tpot as report
    from npuscope.table.parts import Say
    from npuscope.time.programs import chip_to_time

    if plot is not None and history is None:
        raise NpuscopeError("--plot draws a history", remedy="Name its file with --history.")
    decoding, file = Decoding(batch, context, tokens), program_file(model)
    check_outputs([file], history, plot)
    if history is not None:
        check_place(history)
    known = read_history(history) if history is not None else []
    rules = area_rules(areas or areas_beside(file))
    with progress_bar():
        result = replace(tpot(file, arguments or [], decoding, chip_to_time(device), rules), model=model)
    if history is not None:
        entry = entry_of(result, file)
        append_line(Path(history), entry)
        if plot is not None:
            write_texts({plot: parts_page("Time per token", "tpot", drawn_history(history, [*known, entry]))})
    if json:
        print_json(result.as_dict())
    else:
        told = [] if history is None else [Say(since(known, entry))]
        print_report([*report(result, wide), *told], filter(None, (history, plot)))
