"""The ops of the tile language: unit, cost, how sure.

What each does, on which unit, what it costs and how sure that is.

Examples:

  npuscope ops

  npuscope ops row_max

  npuscope ops pl.tile.ci --device 950 --json   (by any spelling)
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuscope.cli import options
from npuscope.cli.output import print_json
from npuscope.ops import table
from npuscope.report.reference import op_table, op_text, ops_text
from npuscope.time.run import chip_to_time


def command(
    name: Annotated[str | None, typer.Argument(help="One op, by its name or by what programs call it.")] = None,
    device: options.Device = "ascend910b1",
    json: options.Json = False,
) -> None:
    chip = chip_to_time(device)
    if name is None:
        print_json(op_table(table.BY_NAME.values(), chip).rows()) if json else print(ops_text(chip))
        return
    spec = table.find(name)
    print_json(op_table([spec], chip).rows()[0]) if json else print(op_text(spec, chip))
