"""Make small captures to try things on, and explain one.

Two runs of a tile program, a kernel table and a model's config.

Example:

  npuscope demo --keep demo_out   (keeps the captures and the report as a page)
"""

from __future__ import annotations

from typing import Annotated

import typer


def command(
    keep: Annotated[str | None, typer.Option("--keep", help="Folder to leave the captures and the page in.")] = None,
) -> None:
    import tempfile
    from pathlib import Path

    from npuscope.analysis import explain
    from npuscope.cli.output import print_report, write_texts
    from npuscope.lab.document import page
    from npuscope.lab.runs import report_document
    from npuscope.llm.example import write_config
    from npuscope.report.explain import report
    from npuscope.trace import read
    from npuscope.trace.example import write_decode_steps
    from npuscope.trace.example_run import HAND_OUT, write_decode_run

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
            print(f"\nkept run, slow_scheduler, kernel_details.csv, qwen3_32b.json and report.html in {folder}")
