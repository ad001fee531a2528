"""Make a small capture of three decode steps, read it, and print its summary.

Example:

  npuscope demo --keep demo_out   (keeps the capture and a .pftrace of it)
"""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    keep: Annotated[str | None, typer.Option("--keep", help="Folder to leave the capture and its timeline in.")] = None,
) -> None:
    import tempfile
    from pathlib import Path

    from npuscope.analysis.doctor import diagnose
    from npuscope.analysis.summary import summarise
    from npuscope.report.terminal import info_text
    from npuscope.trace import read
    from npuscope.trace.example import write_decode_steps

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch if keep is None else keep)
        folder.mkdir(parents=True, exist_ok=True)  # an OSError here names the folder
        capture = folder / "kernel_details.csv"
        write_decode_steps(capture)
        trace = read(capture)
        trace.write(folder / "decode.pftrace")
        print(info_text(capture.name, summarise(trace), diagnose(trace)))
        if keep is not None:
            print(f"\nkept {capture} and {folder / 'decode.pftrace'} (open it in ui.perfetto.dev)")
