"""See a run and change its program: a page follows every save.

Opens captures, a tile program, or both beside each other, on this machine only. A program is watched: at each save of
it or of a module that it imports, it is checked and simulated, and the page shows what has changed.

Examples:

  npuscope lab models/qwen3_14b/decode_layer.py

  npuscope lab decode_layer.py -- --max-seq 4096   (arguments after -- are the program's)

  npuscope lab run/chip_swimlane_records.json

  npuscope lab before.npu after.npu   (two captures compared, the older one first)

  npuscope lab run/chip_swimlane_records.json decode_layer.py   (measured beside simulated)
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.base.plugins import not_installed
from npuscope.cli import options
from npuscope.cli.output import Command as Command
from npuscope.cli.output import after_dashes, names_of, progress_bar, settings_of
from npuscope.explain import explain_ranks
from npuscope.explain.choosing import choose_rank
from npuscope.models import program_file
from npuscope.tile.script.places import places_named, places_of
from npuscope.time.run import chip_to_time
from npuscope.trace import read

if TYPE_CHECKING:
    from npuscope.lab.program_runs import Captures

PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port to serve on; 0 takes a free one.")]
BrowserOption = Annotated[bool, typer.Option(help="Open a browser, if there is one.")]


def command(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(help="Captures, and at most one tile program.", metavar="FILE...")],
    device: options.ProgramDevice = "",
    setting: options.Set = None,
    program: options.ProgramNumber = None,
    runtime: options.Runtime = "",
    seconds: Annotated[float, typer.Option(min=1, help="A run of the program that takes longer is ended.")] = 60.0,
    port: PortOption = 0,
    browser: BrowserOption = True,
    in_editor: Annotated[bool, typer.Option("--in-editor", help="Let a panel of VS Code show the page.")] = False,
) -> None:
    argv = after_dashes(context)
    programs = [file for file in files if file.endswith(".py")]
    captures = [file for file in files if not file.endswith(".py")]
    if len(programs) > 1:
        raise NpuscopeError("the lab watches one program", remedy="`npuscope rank` compares several.")
    if not programs and (argv or setting):
        raise NpuscopeError("arguments and settings are a program's, and none is named")
    check_extra()
    subject = None
    if programs:
        file = program_file(programs[0])
        chip_to_time(device)  # refused here, not in every version
        settings = settings_of(setting or [])
        for name in settings:
            places_named(name, places_of(file), file)
        subject = Request(str(file.resolve()), argv, tuple(settings.items()), device, program, runtime=runtime)
    serve_lab(captures, subject, port, browser, seconds=seconds, in_editor=in_editor)


def check_extra() -> None:
    """Refuses to begin where what serves is not installed."""
    from importlib.util import find_spec

    lacking = [name for name in ("starlette", "uvicorn", "watchfiles") if find_spec(name) is None]
    if lacking:
        raise not_installed(f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'}", "lab")


def serve_lab(
    paths: Sequence[str],
    subject: Request | None,
    port: int,
    browser: bool,
    kernels: str | None = None,
    areas: str | None = None,
    rank: int | None = None,
    seconds: float = 60.0,
    in_editor: bool = False,
) -> None:
    """Serves captures and a program until Ctrl-C."""
    from npuscope.lab.program_runs import Captures
    from npuscope.lab.server import EDITOR_FRAMES, LOOPBACK, NO_FRAMES, bound, serve
    from npuscope.lab.session import LIMITS, Session

    with progress_bar():
        captures = _read(paths, kernels, areas, rank) if paths else Captures((), {})
    place, token = bound(port), secrets.token_urlsafe(18)
    url = f"http://{LOOPBACK}:{place.getsockname()[1]}/{token}/"
    title = " and ".join(
        [*(names_of(list(paths))[:3] if paths else []), *([Path(subject.file).name] if subject else [])]
    )

    def ready() -> None:
        print(f"lab  {url}\nCtrl-C stops.", flush=True)
        if browser:
            _open(url)

    async def session() -> None:
        limits = LIMITS._replace(seconds=seconds)
        frames = EDITOR_FRAMES if in_editor else NO_FRAMES
        served = Session(title, captures.versions, subject, limits, captures.shared, captures.pair)
        await serve(served, place, token, ready, frames)

    try:
        asyncio.run(session())
    except KeyboardInterrupt:
        print("\nstopped")


def _read(paths: Sequence[str], kernels: str | None, areas: str | None, rank: int | None) -> Captures:
    from npuscope.lab.program_runs import captures_of
    from npuscope.report.captures import step_parts

    names = names_of(list(paths))
    found = [explain_ranks(choose_rank(read(path), rank), kernels, areas) for path in paths]
    return captures_of(names, found, step=step_parts(paths[0], names[0]) if len(paths) == 1 else None)


def _open(url: str) -> None:
    """Show the page if this machine has a browser with a screen; a text browser would take the terminal."""
    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
