"""The chips that npuscope knows, with every constant's source.

Every constant with its unit, how sure it is and where it comes from.

Examples:

  npuscope device list

  npuscope device show 910b2 timing    (only what begins so)

  npuscope device compare 950pr 950dt

  npuscope device compare 910b1 mine.toml --json
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import differences, list_constants, load, names
from npuscope.cli import options
from npuscope.cli.output import show
from npuscope.report.device import chip_table, constants_of, device, device_diff
from npuscope.table.parts import Rows

app = typer.Typer(no_args_is_help=True, help=__doc__, rich_markup_mode=None, add_completion=False)
Name = Annotated[str, typer.Argument(help="A chip by name, or a TOML file of your own.")]


@app.command("list")
def list_(json: options.Json = False) -> None:
    """The names of all chips, and what can be done for each."""
    table = chip_table([load(name) for name in names()])
    show(lambda: [Rows(table, table.frame.height)], table.rows, json=json)


@app.command("show")
def show_(
    name: Name,
    prefix: Annotated[str, typer.Argument(help="Only places that begin so, such as timing or cube.")] = "",
    json: options.Json = False,
) -> None:
    """All constants of a chip."""
    chip = load(name)
    rows = list_constants(chip, prefix)
    if not rows:
        parts = ", ".join(dict.fromkeys(row.place.partition(".")[0] for row in list_constants(chip)))
        raise NpuscopeError(f"no constant of {chip.name} begins with '{prefix}'", remedy=f"It has: {parts}.")
    about = {"name": chip.name, "title": chip.title, "inherits": chip.inherits, "aliases": chip.aliases}
    show(partial(device, chip, rows), {**about, "constants": constants_of(rows).rows()}, json=json)


@app.command()
def compare(a: Name, b: Name, json: options.Json = False) -> None:
    """The constants in which two chips differ."""
    chips = load(a), load(b)
    found = differences(*chips)
    data = {"a": chips[0].name, "b": chips[1].name, "differences": found}
    show(partial(device_diff, *chips, found), data, json=json)
