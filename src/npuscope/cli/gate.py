"""Hold captures against a budget, for continuous integration.

Exit code 1 where a limit is broken, and a Markdown table for a pull request.

Examples:

  npuscope gate run --budget budget.toml

  npuscope gate run1 run2 run3 --budget budget.toml --baseline main1 --baseline main2 --baseline main3

  npuscope gate run --budget budget.toml --md comment.md

Three and more captures of the same run measure the noise; with fewer the budget's own noise counts (docs/gate.md).
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuscope.cli.output import JsonFlag, MdFile, print_json
from npuscope.cli.progress_bar import progress_bar


def command(
    paths: Annotated[list[str], typer.Argument(help="Captures of the run.", metavar="TRACE…")],
    budget: Annotated[str, typer.Option(help="The budget, a TOML file.")],
    baseline: Annotated[list[str] | None, typer.Option(help="A capture to compare with; may be repeated.")] = None,
    md: MdFile = None,
    json: JsonFlag = False,
) -> None:
    from npuscope.analysis import gate, read_budget
    from npuscope.cli.output import check_outputs, write_texts
    from npuscope.report.document import as_markdown
    from npuscope.report.explain import gate as report
    from npuscope.trace import read

    check_outputs([*paths, *(baseline or []), budget], md)
    limits = read_budget(budget)
    with progress_bar():
        result = gate([read(path) for path in paths], limits, [read(path) for path in baseline or []])
    text = as_markdown(report(result))
    if md is not None:
        write_texts({md: text})
    if json:
        print_json(result.as_dict())
    else:
        print(text, end="")
    if not result.passed:
        raise typer.Exit(1)
