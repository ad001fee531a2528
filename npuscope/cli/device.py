"""The chips that npuscope knows: every constant with its unit, how sure it is and where it comes from.

Examples:

  npuscope device list

  npuscope device show 910b2 timing    (only what begins so)

  npuscope device diff 910b1 910b4

  npuscope device diff 910b1 mine.toml --json
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuscope.cli.output import JsonFlag, print_json

app = typer.Typer(no_args_is_help=True, help=__doc__, rich_markup_mode=None)
Name = Annotated[str, typer.Argument(help="A chip by name, or a TOML file of your own.")]


@app.command("list")
def list_(json: JsonFlag = False) -> None:
    """The names of all chips, and whether programs can be checked and simulated on them."""
    from npuscope.analysis.table import aligned
    from npuscope.device.chip import load, names

    chips = [load(name) for name in names()]
    if json:
        print_json([{"name": c.name, "title": c.title, "programs": bool(c.space and c.timing)} for c in chips])
        return
    able = ["tile programs" if chip.space and chip.timing else "kernels of captures" for chip in chips]
    rows = [[chip.name, chip.title, what] for chip, what in zip(chips, able, strict=True)]
    print("\n".join(aligned([["name", "chip", "for"], *rows], (False, False, False))))


@app.command()
def show(
    name: Name,
    prefix: Annotated[str, typer.Argument(help="Only places that begin so, such as timing or cube.")] = "",
    json: JsonFlag = False,
) -> None:
    """All constants of a chip."""
    from npuscope.device.chip import load
    from npuscope.device.listing import listed
    from npuscope.errors import NpuscopeError
    from npuscope.report.device_text import device_dict, device_text

    chip = load(name)
    rows = listed(chip, prefix)
    if not rows:
        parts = ", ".join(dict.fromkeys(row.place.partition(".")[0] for row in listed(chip)))
        raise NpuscopeError(f"no constant of {chip.name} begins with '{prefix}'", remedy=f"It has: {parts}.")
    if json:
        print_json(device_dict(chip, rows))
    else:
        print(device_text(chip, rows))


@app.command()
def diff(a: Name, b: Name, json: JsonFlag = False) -> None:
    """The constants in which two chips differ."""
    from npuscope.device.chip import load
    from npuscope.device.listing import differences
    from npuscope.report.device_text import diff_dict, diff_text

    chips = load(a), load(b)
    found = differences(*chips)
    if json:
        print_json(diff_dict(*chips, found))
    else:
        print(diff_text(*chips, found))
