"""Which of several tile programs is fastest, and why.

All simulated, in parallel.

Examples:

  npuscope rank layer.py layer_dual.py layer_spmd.py

  npuscope rank as_found.py improved.py --device 910b2 --html gap.html -- --max-seq 4096   (arguments of all of them)

  npuscope rank A.py B.py --set TILE=64,128 --html ranked.html   (each program with each value)

  npuscope rank A.py B.py C.py --engine ray --results ranked.jsonl --json

  npuscope rank A.py B.py --measured A.py=run/chip_swimlane_records.json   (on top of a capture of A.py)

The first file is the baseline. What does not fit is listed with its error. Exit code 1 where nothing fits.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated

import typer

from npuscope.answer.prediction import Prediction, base_of
from npuscope.answer.rank import answers_of, ranked, variant_rows
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.cli import options
from npuscope.cli.output import Command, after_dashes, check_outputs, names_of, progress_bar, show, values_of
from npuscope.cli.simulate import before_of, files_of
from npuscope.explain.comparison import compare_explained
from npuscope.lab.runs import compare_document, parts_page
from npuscope.models import program_file
from npuscope.report.simulate import beside_capture, capture_data, capture_sections
from npuscope.report.variants import rank
from npuscope.report.variants import why as why_it_wins
from npuscope.time.run import chip_to_time

__all__ = ["Command", "command"]
MOST = 100_000  # variants


def command(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(help="Tile programs; the first is the baseline.", metavar="FILE...")],
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=a,b,c: values to try; may be repeated.")
    ] = None,
    device: options.ProgramDevice = "",
    program: options.ProgramNumber = None,
    runtime: options.Runtime = "",
    ring_slots: options.RingSlots = None,
    measured: options.Measured = None,
    jitter: options.Jitter = None,
    results: options.Results = None,
    engine: options.Engine = "processes",
    jobs: Annotated[int | None, typer.Option(min=1, help="Variants at a time (all cores); 1: in this process.")] = None,
    top: options.Top = 20,
    why: Annotated[bool, typer.Option("--why/--no-why", help="Compare the fastest with the first one named.")] = True,
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    chip_to_time(device)  # refused before anything runs
    argv = after_dashes(context)
    variants = _variants(
        files, setting or [], Request("", argv, (), device, program, ring_slots, jitter=jitter, runtime=runtime)
    )
    check_outputs([*files, *(files_of(measured) if measured else ())], results, html)
    with progress_bar():
        before = None
        if measured is not None:
            before = before_of(measured, replace(variants[0], settings=()))
            variants = [replace(variant, base=base_of(before.base)) for variant in variants]
        found = answers_of(variants, None if results is None else Path(results), engine, jobs)
    order = ranked(found)
    able = [one for one in order if one.error is None]
    parts = [*rank(files, order, found[0], top, variants)]
    parts += [] if before is None else beside_capture(before)
    beside, text = None, list(parts)
    # against the first one named, or the next best where that one wins or does not run
    slower = [one for one in (found[0], *able) if one.error is None and one.wall_ns != able[0].wall_ns]
    if slower and ((why and not json) or html is not None):
        names = slower[0].candidate, able[0].candidate
        with progress_bar():
            a, b = (Prediction(next(v for v in variants if v.name == name)) for name in names)
            comparison = compare_explained(a.explanation, b.explanation)
        both, first = (a.simulated, b.simulated), capture_sections(before)
        beside = compare_document(names, comparison, first, both) if html else None
        text += why_it_wins(names, comparison) if why else ()
    settings = {variant.name: dict(variant.settings) for variant in variants}
    rows = variant_rows(order, found[0], settings)
    data = rows if before is None else {"variants": rows, "anchor": capture_data(before)}
    pages = {html: lambda: parts_page("Variants", "rank", parts, beside)}
    show(lambda: text, data, json=json, pages=pages)
    if not able:
        raise typer.Exit(1)


def _variants(files: list[str], setting: list[str], alike: Request) -> list[Request]:
    """Every file with every combination of values, in the order named; in all else they are alike."""
    grid = values_of(setting, "--set")
    if len({Path(file).resolve() for file in files}) < len(files):
        raise NpuscopeError("a program is named twice", remedy="Its variants are those of --set.")
    if len(files) < 2 and not grid:
        remedy = "Name several programs, or values to try with --set; npuscope simulate times one as it is."
        raise NpuscopeError("one program is nothing to rank", remedy=remedy)
    for file in files:
        program_file(file)
    count = len(files) * prod(map(len, grid.values()))
    if count > MOST:
        raise NpuscopeError(f"{count:,} variants, more than {MOST:,}", remedy="Try fewer values at a time.")
    found = []
    names = names_of(files)
    for name, file in zip(names if len(set(names)) == len(files) else files, files, strict=True):
        for values in product(*grid.values()):
            chosen = tuple(zip(grid, values, strict=True))
            words = [name] * (len(files) > 1) + [f"{key}={value}" for key, value in chosen]
            found.append(replace(alike, name=" ".join(words), file=str(Path(file).resolve()), settings=chosen))
    return found
