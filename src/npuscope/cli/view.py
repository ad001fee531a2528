"""Look at a trace in the browser, and in the Perfetto UI.

The same as `npuscope lab` with one capture. Works offline, on loopback only.

Examples:

  npuscope view run/chip_swimlane_records.json

  npuscope view kernel_details.csv --port 8000 --no-browser
"""

from __future__ import annotations

from npuscope.cli.lab import BrowserOption, PortOption, check_extra, serve_lab
from npuscope.cli.output import AreasFile, CapturePath, KernelsRegex, RankOption


def command(
    path: CapturePath,
    kernels: KernelsRegex = None,
    areas: AreasFile = None,
    rank: RankOption = None,
    port: PortOption = 0,
    browser: BrowserOption = True,
) -> None:
    check_extra()
    serve_lab([path], None, port, browser, kernels, areas, rank)
