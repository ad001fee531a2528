"""Compare traces: what got slower or faster, and where.

Two in detail, with the difference split into its causes; three and more as a trend.

Examples:

  npuscope compare before.json after.json

  npuscope compare cce.json pypto.json --kernels 'attention|fa_fused' --html gap.html

  npuscope compare A B --match 'QKV_proj=qkv'   (kernels that have other names in B)

  npuscope compare monday tuesday wednesday   (a trend)

  npuscope compare root_before root_after --rank 3   (without it, the slowest rank of each)
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuscope.cli.output import (
    HtmlFile,
    JsonFlag,
    KernelsRegex,
    MdFile,
    RankOption,
    StepOption,
    WideFlag,
    print_json,
    print_report,
)
from npuscope.cli.progress_bar import progress_bar


def command(
    paths: Annotated[list[str], typer.Argument(help="Captures: A and B, or three and more.", metavar="A B [C…]")],
    kernels: KernelsRegex = None,
    step: StepOption = None,
    rank: RankOption = None,
    match: Annotated[list[str] | None, typer.Option(help="A kernel of A and its name in B, as A=B.")] = None,
    html: HtmlFile = None,
    md: MdFile = None,
    wide: WideFlag = False,
    json: JsonFlag = False,
) -> None:
    from npuscope.analysis import explain_ranks
    from npuscope.analysis.comparison import compare_explained, trend_of
    from npuscope.cli.output import check_outputs, names_of, pairs_of, read_steps, reproduce, write_reports
    from npuscope.errors import NpuscopeError
    from npuscope.lab.document import page
    from npuscope.lab.runs import compare_document
    from npuscope.report import explain as reports
    from npuscope.report.document import as_markdown

    if len(paths) < 2:
        raise NpuscopeError("comparing needs at least two captures")
    if len(paths) > 2 and (html is not None or md is not None):
        raise NpuscopeError("--html and --md are for two captures; three and more give a trend table")
    pairs = pairs_of(match or [], "--match")
    check_outputs(paths, html, md)
    names = names_of(paths)
    with progress_bar():
        ranks = [explain_ranks(read_steps(path, step, rank=rank)) for path in paths]
        names = [found.named(name) for found, name in zip(ranks, names, strict=True)]
        explained = [found.explained[found.slowest] for found in ranks]
        if len(paths) > 2:
            table = trend_of(dict(zip(names, explained, strict=True)), kernels)
            if json:
                print_json({"trend": table.to_dicts()})
            else:
                print_report(reports.trend(table, kernels))
            return
        result = compare_explained(explained[0], explained[1], kernels, pairs)
        both = (names[0], names[1])
        written = write_reports(
            {
                html: lambda: page(compare_document(both, result)),
                md: lambda: as_markdown(reports.compare(both, result), reproduce()),
            }
        )
    if json:
        print_json(result.as_dict())
    else:
        print_report(reports.compare(both, result, wide), written)
