"""Which of several tile programs is fastest on the chip, and why: all simulated, in parallel.

Examples:

  npuscope rank layer.py layer_dual.py layer_spmd.py

  npuscope rank as_found.py improved.py --device 910b2 --html gap.html -- --max-seq 4096   (arguments of all of them)

  npuscope rank A.py B.py C.py --engine ray --results ranked.jsonl --json

The first file is the baseline. What does not fit is listed with its error. Exit code 1 where nothing fits.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from npuscope.cli.output import HtmlFile, JsonFlag
from npuscope.cli.ranking import Device, Engine, Jitter, Jobs, Program, Results, RingSlots, Top, Why, rank_variants

AFTER = "npuscope.after"


class Command(TyperCommand):
    """Keeps what stands after -- apart: both the files and the programs' arguments may be many."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[AFTER] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


def command(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(help="Tile programs; the first is the baseline.", metavar="A B [C…]")],
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
    from pathlib import Path

    from npuscope.cli.output import names_of
    from npuscope.errors import BadInput, NpuscopeError
    from npuscope.simulate.programs import chip_to_time
    from npuscope.simulate.variants import Variant

    if len(files) < 2 or len(set(files)) < len(files):
        raise NpuscopeError("ranking needs at least two different programs", remedy="npuscope sweep varies one.")
    for file in files:
        if not Path(file).is_file():
            raise BadInput("no such file", path=file)
    chip = chip_to_time(device)
    argv = tuple(context.meta.get(AFTER, ()))
    variants = [
        Variant(name, str(Path(file).resolve()), argv, (), device, program, ring_slots, jitter)
        for name, file in zip(names_of(files), files, strict=True)
    ]
    rank_variants(
        f"ranked on {chip.name}", variants, results=results, engine=engine, jobs=jobs, top=top, why=why, html=html,
        json=json,
    )  # fmt: skip
