"""How far every kernel is from what the chip can do.

Which are far from it, and what that is worth per step.

Examples:

  npuscope roofline kernel_details.csv --device a3

  npuscope roofline kernel_details.csv --device a3 --context 4096 --ranks 16 --html roofline.html

  npuscope roofline torch_profile.json.gz   (a profile that names its GPU)

Shapes do not tell how long the cached context is, nor how many rows an expert got: give them, or those kernels have
no price. Devices and their sources: docs/reference/devices.md.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from npuscope.cli import options
from npuscope.cli.output import check_outputs, names_of, progress_bar, read_steps, show
from npuscope.forward.roofline import roofline
from npuscope.lab.runs import parts_page
from npuscope.report.forward import roofline as report


def command(
    path: options.Capture,
    device: Annotated[str | None, typer.Option(help="A device's name, or a TOML file of your own.")] = None,
    context: Annotated[float | None, typer.Option(help="Tokens in the cache per sequence, for attention.")] = None,
    ranks: Annotated[int | None, typer.Option(help="Ranks of collectives, where the capture does not tell.")] = None,
    tokens_per_expert: Annotated[float | None, typer.Option(help="Rows each expert got, for grouped matmuls.")] = None,
    step: options.Step = None,
    number: options.Pass = None,
    html: options.Html = None,
    md: options.Md = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    check_outputs([path], html, md)
    (name,) = names_of([path])
    with progress_bar():
        result = roofline(
            read_steps(path, step, number), device, context=context, ranks=ranks, tokens_per_expert=tokens_per_expert
        )
    parts = partial(report, path, name, result)
    pages = {html: lambda: parts_page(f"Roofline of {name}", "roofline", parts())}
    show(parts, result.as_dict, json=json, wide=wide, md=md, pages=pages)
