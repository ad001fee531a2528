"""The tile programs that come with npuscope; copy one to edit it.

Examples:

  npuscope models

  npuscope models copy qwen3_14b/decode_layer my_layer   (the program and the modules it needs, into a new folder)

  npuscope simulate model:qwen3_14b/decode_layer   (every command takes a model by its name)
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from npuscope.base.errors import CannotWrite
from npuscope.cli import options
from npuscope.cli.output import print_json
from npuscope.models import FOLDER, PREFIX, file_of, models, needs

app = typer.Typer(
    help=__doc__,
    invoke_without_command=True,
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def listing(context: typer.Context, json: options.Json = False) -> None:
    if context.invoked_subcommand is not None:
        return
    found = models()
    if json:
        print_json([{"name": model.name, "file": str(model.file), "about": model.about} for model in found])
        return
    width = max(len(model.name) for model in found)
    for model in found:
        print(f"model:{model.name:<{width}}  {model.about}")
    print("\ntry: npuscope simulate model:qwen3_14b/decode_layer")


@app.command(help="Copy a model, with the modules it needs, into a folder of yours.")
def copy(
    name: Annotated[str, typer.Argument(help="A model, as `npuscope models` lists it.")],
    folder: Annotated[str, typer.Argument(help="The folder to put it into; made where it is missing.")],
) -> None:
    file = Path(file_of(name if name.startswith(PREFIX) else PREFIX + name))
    target = Path(folder)
    places = needs(file)
    for place in places:  # before anything is written
        if (target / place).exists():
            raise CannotWrite("is there already", path=target / place, remedy="Name another folder.")
    target.mkdir(parents=True, exist_ok=True)
    for place in places:
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        if (FOLDER / place).is_dir():
            shutil.copytree(FOLDER / place, target / place, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copyfile(FOLDER / place, target / place)
    copied = target / file.relative_to(FOLDER)
    print(f"copied to {copied}\ntry: npuscope simulate {copied}")
