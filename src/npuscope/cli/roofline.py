"""How far every kernel is from what the chip can do.

Which are far from it, and what that is worth per step.

Examples:

  npuscope roofline kernel_details.csv --device a3

  npuscope roofline kernel_details.csv --device a3 --context 4096 --ranks 16 --html roofline.html

  npuscope roofline torch_profile.json.gz   (a profile that names its GPU)

  npuscope roofline decode_layer.py -- --context 4096   (a tile program, simulated; arguments after -- are its own)

Shapes do not tell how long the cached context is, nor how many rows an expert got: give them, or those kernels have
no price. Devices and their sources: docs/reference/devices.md.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Annotated

import typer

from npuscope.base.errors import NpuscopeError
from npuscope.cli import options
from npuscope.cli.output import check_outputs, names_of, progress_bar, read_steps, settings_of, show
from npuscope.forward.roofline import Roofline, roofline
from npuscope.lab.runs import parts_page
from npuscope.report.forward import roofline as report


def command(
    path: options.CaptureOrProgram,
    arguments: options.Arguments = None,
    device: Annotated[str | None, typer.Option(help="A device's name, or a TOML file of your own.")] = None,
    context: Annotated[float | None, typer.Option(help="Tokens in the cache per sequence, for attention.")] = None,
    ranks: Annotated[int | None, typer.Option(help="Ranks of collectives, where the capture does not tell.")] = None,
    tokens_per_expert: Annotated[float | None, typer.Option(help="Rows each expert got, for grouped matmuls.")] = None,
    step: options.Step = None,
    number: options.Pass = None,
    setting: options.Set = None,
    html: options.Html = None,
    md: options.Md = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    check_outputs([path], html, md)
    (name,) = names_of([path])
    given = {"context": context, "ranks": ranks, "tokens_per_expert": tokens_per_expert}
    with progress_bar():
        if path.endswith(".py"):
            if step or number is not None or any(value is not None for value in given.values()):
                raise NpuscopeError(
                    "a program takes neither steps nor --context, --ranks and --tokens-per-expert: it tells its sizes",
                    path=path,
                    remedy="Give it arguments of its own after --, or --set CONSTANT=VALUE.",
                )
            result = _of_program(path, arguments, setting, device)
        elif arguments or setting:
            remedy = "Those after -- and --set are a tile program's."
            raise NpuscopeError("a capture takes no arguments", path=path, remedy=remedy)
        else:
            result = roofline(read_steps(path, step, number), device, **given)  # type: ignore[arg-type]
    parts = partial(report, path, name, result)
    pages = {html: lambda: parts_page(f"Roofline of {name}", "roofline", parts())}
    show(parts, result.as_dict, json=json, wide=wide, md=md, pages=pages)


def _of_program(path: str, arguments: list[str] | None, setting: list[str] | None, device: str | None) -> Roofline:
    from npuscope.answer.prediction import Prediction  # a capture needs no simulator
    from npuscope.answer.request import Request
    from npuscope.forward.program_roofline import program_roofline

    settings = tuple(settings_of(setting or []).items())
    request = Request(path, tuple(arguments or ()), settings)
    one = Prediction(request if device is None else replace(request, device=device))
    return program_roofline(one.simulated, one.timeline.busy)
