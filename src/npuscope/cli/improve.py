"""Make a tile program faster: fixes and tile sizes together.

Every patch is tried before it is taken: it runs, its numbers agree, it fits, is safe and is predicted faster. Greedy
first, then pairs. Ctrl-C ends it with what it has found, and --resume goes on from there.

Examples:

  npuscope improve layer.py

  npuscope improve layer.py --trials 200 --md improve.md --patches steps/

  npuscope improve layer.py --apply --commit -- --max-seq 4096   (writes what was found, a commit for each step)

Needs the extra `fix`: LibCST. Exit code 1 where nothing was found.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from npuscope.answer.improve import applied, improve, written_patches
from npuscope.answer.judge import How
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.cli import options
from npuscope.cli.output import check_outputs, progress_bar, show
from npuscope.models import program_file
from npuscope.report.fixes import improved_data, improvement
from npuscope.time.run import chip_to_time


def command(
    file: options.Program,
    arguments: options.Arguments = None,
    trials: Annotated[int, typer.Option(min=1, help="Patches that are tried, at most.")] = 100,
    apply: Annotated[bool, typer.Option("--apply", help="Write the best program to its files.")] = False,
    commit: Annotated[bool, typer.Option("--commit", help="Each step as a commit of its own; needs --apply.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Take the trials of a search that was stopped.")] = False,
    patches: Annotated[
        str | None, typer.Option("--patches", help="Also write a patch per step to this folder.")
    ] = None,
    golden: Annotated[bool, typer.Option("--golden/--no-golden", help="Compare the numbers of every patch.")] = True,
    device: options.ProgramDevice = "",
    program: options.ProgramNumber = None,
    runtime: options.Runtime = "",
    ring_slots: options.RingSlots = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Patches tried at a time: 2 unless given.")] = None,
    md: options.Md = None,
    json: options.Json = False,
) -> None:
    if commit and not apply:
        raise NpuscopeError("--commit needs --apply")
    check_outputs([file], md)
    chip_to_time(device)  # refused before anything runs
    here = Path.cwd()
    path, given = str(program_file(file).resolve()), tuple(arguments or ())
    request = Request(path, given, (), device, program, ring_slots, runtime=runtime)
    with progress_bar():
        found = improve(request, trials, How(golden=golden, jobs=jobs), resume)
    written = [] if patches is None else written_patches(found.taken, Path(patches), here)
    written += applied(found.taken, commit) if apply else []
    show(
        partial(improvement, file, found, here, written),
        lambda: {**improved_data(file, found), "written": written},
        json=json,
        md=md,
    )
    if not found.taken:
        raise typer.Exit(1)
