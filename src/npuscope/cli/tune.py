"""Search a tile program's settings for the fastest.

What does not fit is dropped without simulating it, the numbers of the best are checked, interrupted work is resumed.

Examples:

  npuscope tune layer.py   (knobs are found: what cuts something into pieces, with values that divide it)

  npuscope tune layer.py --set TILE_M=64,128,256 --set TILE_K=64,128,256 --trials 20

  npuscope tune layer.py --front memory --results tune.jsonl   (again: only what is missing is simulated)

  npuscope tune layer.py --engine ray --jobs 32 -- --max-seq 4096

The first point is the program as it is. A setting is an option, a constant, a field of a configuration or an
environment variable of the program. Exit code 1 where nothing runs.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.answer.search import space_of
from npuscope.answer.tune import GOALS, found_space, tune
from npuscope.base.errors import NpuscopeError
from npuscope.base.pool import Workers
from npuscope.cli import options
from npuscope.cli.output import check_outputs, progress_bar, show, values_of
from npuscope.explain.comparison import compare_explained
from npuscope.lab.runs import compare_document, parts_page
from npuscope.models import program_file
from npuscope.report.variants import tune as report
from npuscope.report.variants import tune_data
from npuscope.tile.script.places import places_named, places_of
from npuscope.time.run import chip_to_time


def command(
    file: options.Program,
    arguments: options.Arguments = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="NAME=a,b,c: values to try; may be repeated. Else found."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Points that are simulated, at most.")] = 50,
    front: Annotated[str | None, typer.Option(help="Also the best of time against this: memory or tasks.")] = None,
    seed: Annotated[int, typer.Option(help="Of the search.")] = 0,
    device: options.ProgramDevice = "",
    program: options.ProgramNumber = None,
    runtime: options.Runtime = "",
    ring_slots: options.RingSlots = None,
    golden: Annotated[bool, typer.Option("--golden/--no-golden", help="Check the numbers of the best.")] = True,
    results: options.Results = None,
    engine: options.Engine = "processes",
    jobs: Annotated[int | None, typer.Option(min=1, help="Points tried at a time: 2 unless given, 8 on Ray.")] = None,
    top: options.Top = 10,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    if front is not None and front not in GOALS:
        raise NpuscopeError(f"--front takes {' or '.join(GOALS)}, not '{front}'")
    Workers(engine)  # refused at once where there is no such engine
    program_file(file)
    check_outputs([file], results, html)
    chip_to_time(device)  # refused before anything runs
    argv = tuple(arguments or ())
    with progress_bar():
        if setting:
            given, places = values_of(setting, "--set"), places_of(Path(file))
            now = {name: [str(place.value) for place in places_named(name, places, Path(file))] for name in given}
            space = space_of([(name, values, next(iter(now[name]), None)) for name, values in given.items()])
        else:
            space = found_space(file, argv)
        alike = Request(str(Path(file).resolve()), argv, (), device, program, ring_slots, runtime=runtime)
        kept = None if results is None else Path(results)
        tuned = tune(alike, space, trials, front, kept, engine, jobs, seed, golden)
        comparison, first, best = None, tuned.answers[0], tuned.best
        if best is not None and best.candidate != first.candidate and first.wall_ns is not None and (html or not json):
            named = {variant.name: variant for variant in tuned.variants}
            a, b = (Prediction(named[one.candidate]).explanation for one in (first, best))
            comparison = compare_explained(a, b)
    beside = None
    if comparison is not None and best is not None and html:
        beside = compare_document((first.candidate, best.candidate), comparison)
    parts = partial(report, file, tuned, top, comparison)
    pages = {html: lambda: parts_page("Variants", "rank", parts(), beside)}
    show(parts, partial(tune_data, file, tuned), json=json, pages=pages)
    if best is None:
        raise typer.Exit(1)
