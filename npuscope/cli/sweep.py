"""Try all combinations of a tile program's settings on the chip's model: which is fastest, and why.

Examples:

  npuscope sweep layer.py --set MLP_TN=128,256,512 --set DUAL=0,1

  npuscope sweep layer.py --set TILE=64,128 --results sweep.jsonl   (again: only what is missing)

  npuscope sweep layer.py --set LAYERS=1,2,4 --engine ray --json -- --max-seq 4096

A setting NAME is an option of the program (--mlp-tn for MLP_TN), a top-level constant of the file, an environment
variable, or all of them; a NAME that is none is an error. The first combination is the baseline: name the present
values first. What does not fit is listed with its error. Exit code 1 where nothing fits.
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuscope.cli.output import HtmlFile, JsonFlag
from npuscope.cli.ranking import Device, Engine, Jitter, Jobs, Program, Results, RingSlots, Top, Why, rank_variants


def command(
    file: Annotated[str, typer.Argument(help="A tile program: a Python file.")],
    setting: Annotated[list[str], typer.Option("--set", help="NAME=a,b,c: values to try; may be repeated.")],
    arguments: Annotated[list[str] | None, typer.Argument(help="The program's own arguments, after --.")] = None,
    device: Device = "ascend910b1",
    program: Program = None,
    ring_slots: RingSlots = None,
    jitter: Jitter = None,
    results: Results = None,
    engine: Engine = "processes",
    jobs: Jobs = None,
    top: Top = 20,
    why: Why = True,
    html: HtmlFile = None,
    json: JsonFlag = False,
) -> None:
    from itertools import product
    from pathlib import Path

    from npuscope.cli.output import values_of
    from npuscope.errors import BadInput
    from npuscope.simulate.programs import chip_to_time
    from npuscope.simulate.variants import Variant

    if not Path(file).is_file():
        raise BadInput("no such file", path=file)
    grid = values_of(setting, "--set")
    chip = chip_to_time(device)
    place = str(Path(file).resolve())
    variants = []
    for values in product(*grid.values()):
        chosen = tuple(zip(grid, values, strict=True))
        name = " ".join(f"{name}={value}" for name, value in chosen)
        variants.append(Variant(name, place, tuple(arguments or ()), chosen, device, program, ring_slots, jitter))
    rank_variants(
        f"{file} on {chip.name}", variants, results=results, engine=engine, jobs=jobs, top=top, why=why, html=html,
        json=json,
    )  # fmt: skip
