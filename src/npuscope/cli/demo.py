"""Make small captures to try things on, and explain one.

Two runs of a tile program, a kernel table and a model's config.

Example:

  npuscope demo --keep demo_out   (keeps the captures and the report as a page)
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from npuscope.cli.output import print_report, print_text, write_texts
from npuscope.explain import explain
from npuscope.forward.llm.prediction import write_config
from npuscope.lab.document import page
from npuscope.lab.runs import report_document
from npuscope.report.captures import report
from npuscope.trace import read
from npuscope.trace.example import HAND_OUT, write_decode_run, write_decode_steps


def command(
    keep: Annotated[str | None, typer.Option("--keep", help="Folder to leave the captures and the page in.")] = None,
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch if keep is None else keep)
        folder.mkdir(parents=True, exist_ok=True)  # an OSError here names the folder
        write_decode_steps(folder / "kernel_details.csv")
        write_decode_run(folder / "run")
        write_decode_run(folder / "slow_scheduler", hand_out=2 * HAND_OUT)
        write_config(folder / "qwen3_32b.json")
        explained = explain(read(folder / "run"), kernels="qk_matmul|softmax|sv_matmul")
        print_report(report("run", "run", explained))
        if keep is not None:
            write_texts({str(folder / "report.html"): page(report_document("decode run", explained))})
        print_text(_next(keep))


def _next(kept: str | None) -> str:
    """What to try now, with the captures where they are kept."""
    where, name = kept or "demo_out", own_command()
    lines = [] if kept else [f"  npuscope demo --keep {where}   (keeps the captures, for what follows)"]
    lines += [
        f"  npuscope report {where}/run --html report.html   (the same as a page to click through)",
        f"  npuscope compare {where}/run {where}/slow_scheduler   (what got slower)",
        f"  npuscope whatif {where}/run   (what each change would buy)",
        f"  npuscope forward {where}/kernel_details.csv   (forward passes of a serving trace)",
        "  npuscope simulate model:qwen3_14b/decode_layer   (a kernel on a model of the chip)",
        "  npuscope --help   (all commands, by question)",
    ]
    left_there = (
        f"Kept in {kept}: run, slow_scheduler, kernel_details.csv, qwen3_32b.json, report.html.\n" if kept else ""
    )
    shown = [line.replace("  npuscope", f"  {name}", 1) for line in lines]
    return "\n".join(["", f"{left_there}What to try next:", *shown])


def own_command() -> str:
    """How to call npuscope from here: by its name where that is found, else by its place, as after `make demo`."""
    place = os.path.abspath(sys.argv[0])
    if shutil.which("npuscope") or not place.endswith("npuscope"):
        return "npuscope"
    return os.path.relpath(place) if place.startswith(os.getcwd() + os.sep) else place
