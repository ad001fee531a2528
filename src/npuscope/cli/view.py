"""Look at a trace in the browser, and in the Perfetto UI.

The report and the same trace in the Perfetto UI. Works offline, on loopback only.

Examples:

  npuscope view run/chip_swimlane_records.json

  npuscope view kernel_details.csv --port 8000 --no-browser
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from npuscope.cli.output import AreasFile, CapturePath, KernelsRegex, RankOption
from npuscope.cli.progress_bar import progress_bar

if TYPE_CHECKING:
    from npuscope.view.server import Server


def command(
    path: CapturePath,
    kernels: KernelsRegex = None,
    areas: AreasFile = None,
    rank: RankOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve on; 0 takes a free one.")] = 0,
    browser: Annotated[bool, typer.Option(help="Open a browser, if there is one.")] = True,
) -> None:
    import tempfile
    from pathlib import Path

    from npuscope.analysis import explain_ranks
    from npuscope.analysis.apart import chosen
    from npuscope.cli.output import names_of
    from npuscope.errors import NpuscopeError
    from npuscope.trace import read
    from npuscope.view.server import Server
    from npuscope.view.site import PERFETTO, site_of

    with tempfile.TemporaryDirectory() as folder:
        with progress_bar():
            site = site_of(names_of([path])[0], explain_ranks(chosen(read(path), rank), kernels, areas), Path(folder))
        try:
            server = Server(site, port)
        except OSError as error:
            raise NpuscopeError(
                f"port {port} is not free ({error.strerror})", remedy="Choose another --port."
            ) from error
        try:
            _serve(server, PERFETTO in site.files, browser)
        except KeyboardInterrupt:
            print("\nstopped")


def _serve(server: Server, perfetto: bool, browser: bool) -> None:
    with server:
        print(f"report    {server.url}")
        print(
            f"Perfetto  {server.url}perfetto/" if perfetto else "Perfetto  not installed: pip install 'npuscope[view]'"
        )
        print("Ctrl-C stops.", flush=True)
        if browser:
            _open(server.url)
        server.serve_forever()


def _open(url: str) -> None:
    """Show the page if this machine has a browser with a screen; a text browser would take the terminal."""
    import os
    import sys
    import webbrowser

    if sys.platform in ("darwin", "win32") or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        webbrowser.open(url)
