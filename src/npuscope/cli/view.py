"""Look at a trace in the browser, and in the Perfetto UI.

The same as `npuscope lab` with one capture. Works offline, on loopback only.

Examples:

  npuscope view run/chip_swimlane_records.json

  npuscope view kernel_details.csv --port 8000 --no-browser
"""

from __future__ import annotations

from npuscope.cli import options
from npuscope.cli.lab import BrowserOption, PortOption, check_extra, serve_lab


def command(
    path: options.Capture,
    kernels: options.Kernels = None,
    areas: options.Areas = None,
    rank: options.Rank = None,
    port: PortOption = 0,
    browser: BrowserOption = True,
) -> None:
    check_extra()
    serve_lab([path], None, port, browser, kernels, areas, rank)
