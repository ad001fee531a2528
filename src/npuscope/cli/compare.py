"""Compare traces: what got slower or faster, and where.

Two in detail, with the difference split into its causes; several runs against several, told from noise; three and more
as a trend.

Examples:

  npuscope compare before.json after.json

  npuscope compare before1 before2 before3 vs after1 after2 after3   (faster, slower or undecided at 95%)

  npuscope compare folder_of_runs vs other_folder --html gap.html

  npuscope compare before.csv after.csv --steps   (the steps of each capture are its runs)

  npuscope compare cce.json pypto.json --kernels 'attention|fa_fused' --html gap.html

  npuscope compare A B --match 'QKV_proj=qkv'   (kernels that have other names in B)

  npuscope compare monday tuesday wednesday   (a trend)

  npuscope compare root_before root_after --rank 3   (without it, the slowest rank of each)

  npuscope compare --runtimes decode_layer.py -- --max-seq 4096   (one program under tmr and under hbg)
"""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from npuscope.base.errors import NpuscopeError
from npuscope.cli import options
from npuscope.cli.output import Command as Command
from npuscope.cli.output import (
    after_dashes,
    check_outputs,
    names_of,
    pairs_of,
    progress_bar,
    read_steps,
    settings_of,
    show,
)
from npuscope.explain import explain_ranks
from npuscope.explain.comparison import Comparison, compare_explained, trend_of
from npuscope.explain.many.runs import SeveralRuns, check_ran, compare_runs, read_runs
from npuscope.lab.document import page
from npuscope.lab.runs import compare_document, parts_page
from npuscope.report import comparison as reports
from npuscope.report.comparison import several

VERSUS = "vs"


def command(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(help="Captures: A and B; A… vs B…; or three and more.", metavar="A B | A… vs B… | A B C…"),
    ],
    kernels: options.Kernels = None,
    step: options.Step = None,
    steps: options.Steps = False,
    rank: options.Rank = None,
    match: Annotated[list[str] | None, typer.Option(help="A kernel of A and its name in B, as A=B.")] = None,
    runtimes: Annotated[
        bool,
        typer.Option("--runtimes", help="A tile program under tmr and hbg, simulated: which is faster, and why."),
    ] = False,
    device: options.ProgramDevice = "",
    setting: options.Set = None,
    program: options.ProgramNumber = None,
    html: options.Html = None,
    md: options.Md = None,
    wide: options.Wide = False,
    json: options.Json = False,
) -> None:
    if runtimes:
        _compare_runtimes(paths, after_dashes(context), device, setting, program, md, wide, json)
        return
    if after_dashes(context) or setting or program is not None:
        raise NpuscopeError("arguments, --set and --program are a program's", remedy="Add --runtimes.")
    pairs = pairs_of(match or [], "--match")
    if VERSUS in paths or steps:
        if step:
            raise NpuscopeError("--step names single steps, and this compares many", remedy="Leave it out.")
        sides = _sides(paths)
        check_outputs([*sides[0], *sides[1]], html, md)
        _compare_several(sides, kernels, pairs, steps, rank, html, md, wide, json)
        return
    if len(paths) < 2:
        raise NpuscopeError("comparing needs at least two captures")
    if len(paths) > 2 and (html is not None or md is not None):
        remedy = f"Several runs of two sides are told apart by '{VERSUS}': A1 A2 {VERSUS} B1 B2."
        raise NpuscopeError(
            "--html and --md are for two captures or two sides; three and more captures give a trend", remedy=remedy
        )
    check_outputs(paths, html, md)
    names = names_of(paths)
    with progress_bar():
        ranks = [explain_ranks(read_steps(path, step, rank=rank)) for path in paths]
        names = [found.named(name) for found, name in zip(ranks, names, strict=True)]
        explained = [found.explained[found.shown] for found in ranks]
        for path, one in zip(paths, explained, strict=True):
            check_ran(one.work.wall, path)
        if len(paths) > 2:
            table = trend_of(dict(zip(names, explained, strict=True)), kernels)
            show(partial(reports.trend, table, kernels), {"trend": table.to_dicts()}, json=json)
            return
        result = compare_explained(explained[0], explained[1], kernels, pairs)
        both = (names[0], names[1])
    pages = {html: lambda: page(compare_document(both, result))}
    show(
        partial(reports.compare, both, result),
        partial(reports.compare_data, result),
        json=json,
        wide=wide,
        md=md,
        pages=pages,
    )


def _compare_runtimes(
    paths: list[str],
    argv: tuple[str, ...],
    device: str,
    setting: list[str] | None,
    program: int | None,
    md: str | None,
    wide: bool,
    json: bool,
) -> None:
    from npuscope.answer.request import Request
    from npuscope.answer.runtimes import both_runtimes
    from npuscope.models import program_file
    from npuscope.time.run import chip_to_time

    if len(paths) != 1:
        raise NpuscopeError("--runtimes compares one tile program with itself", remedy="Name one Python file.")
    check_outputs(paths, md)
    chip_to_time(device)
    settings = tuple(settings_of(setting or []).items())
    with progress_bar():
        both = both_runtimes(Request(str(program_file(paths[0])), argv, settings, device, program, name=paths[0]))
        show(partial(reports.runtimes, both), both.as_dict, json=json, wide=wide, md=md)


def _sides(paths: list[str]) -> tuple[list[str], list[str]]:
    """What stands before `vs` and after it; two captures need none."""
    if paths.count(VERSUS) == 0 and len(paths) == 2:
        return [paths[0]], [paths[1]]
    if paths.count(VERSUS) != 1:
        raise NpuscopeError("two sides are needed", remedy=f"Put one '{VERSUS}' between the runs of A and those of B.")
    at = paths.index(VERSUS)
    if not paths[:at] or not paths[at + 1 :]:
        raise NpuscopeError(f"nothing stands {'before' if at == 0 else 'after'} '{VERSUS}'", remedy="Name runs there.")
    return paths[:at], paths[at + 1 :]


def _compare_several(
    sides: tuple[list[str], list[str]],
    kernels: str | None,
    pairs: dict[str, str],
    steps: bool,
    rank: int | None,
    html: str | None,
    md: str | None,
    wide: bool,
    json: bool,
) -> None:
    with progress_bar():
        a, b = (read_runs(side, steps, rank) for side in sides)
        found = compare_runs(a, b, kernels, pairs, steps)
        middle = None if steps else _middle(found, kernels, pairs, rank)
        all_names = names_of([*sides[0], *sides[1]])
        names = _joined(all_names[: len(sides[0])]), _joined(all_names[len(sides[0]) :])
    parts = partial(several, names, found, middle)
    pages = {html: lambda: parts_page("Several runs", "several", parts())}
    show(parts, lambda: {**found.as_dict(), "middle_runs": middle}, json=json, wide=wide, md=md, pages=pages)


def _middle(found: SeveralRuns, kernels: str | None, pairs: dict[str, str], rank: int | None) -> Comparison:
    """The runs in the middle of both sides, compared in detail."""
    ranks = [explain_ranks(read_steps(run.name, None, rank=rank)) for run in found.middle]
    a, b = (one.explained[one.shown] for one in ranks)
    return compare_explained(a, b, kernels, pairs)


def _joined(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
