"""`rank` and `sweep` are one command: programs, each with every combination of settings, in order of their times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any  # a context: typer's own or click's, by its version

import typer
from typer.core import TyperCommand

from npuscope.cli.output import (
    DeviceName,
    HtmlFile,
    Jitter,
    JsonFlag,
    Measured,
    PlotFile,
    ProgramNumber,
    RingSlots,
    print_json,
    print_report,
    progress_bar,
)  # fmt: skip

if TYPE_CHECKING:
    from npuscope.answer.request import Request
    from npuscope.table.parts import Part

AFTER = "npuscope.after"
MOST = 100_000  # variants


class Command(TyperCommand):
    """Keeps what stands after -- apart: both the files and the programs' arguments may be many."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[AFTER] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- ARGUMENTS OF THE PROGRAMS]"]


def command(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(help="Tile programs; the first is the baseline.", metavar="FILE...")],
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="NAME=a,b,c: values to try; may be repeated.")
    ] = None,
    device: DeviceName = "ascend910b1",
    program: ProgramNumber = None,
    ring_slots: RingSlots = None,
    measured: Measured = None,
    jitter: Jitter = None,
    results: Annotated[
        str | None,
        typer.Option("--results", help="Keep results here (JSON lines); those that stand there are not run."),
    ] = None,
    engine: Annotated[str, typer.Option(help="processes, or ray (npuscope[ray], RAY_ADDRESS).")] = "processes",
    jobs: Annotated[int | None, typer.Option(min=1, help="Variants at a time (all cores); 1: in this process.")] = None,
    top: Annotated[int, typer.Option(min=1, help="Variants shown.")] = 20,
    why: Annotated[bool, typer.Option("--why/--no-why", help="Compare the fastest with the first one named.")] = True,
    html: HtmlFile = None,
    plot: PlotFile = None,
    json: JsonFlag = False,
) -> None:
    from dataclasses import replace
    from pathlib import Path

    from npuscope.answer.prediction import Prediction
    from npuscope.answer.rank import answers_of, ranked, variant_rows
    from npuscope.answer.request import Request
    from npuscope.cli.anchoring import before_of, files_of
    from npuscope.cli.output import check_outputs, write_reports
    from npuscope.explain.comparison import compare_explained
    from npuscope.lab.document import page
    from npuscope.lab.runs import compare_document, parts_page
    from npuscope.report.anchor import anchor, anchor_dict, anchor_sections
    from npuscope.report.rank import headline, rank, title_of
    from npuscope.report.rank import why as why_it_wins
    from npuscope.table.parts import Say
    from npuscope.time.run import chip_to_time

    chip = chip_to_time(device)
    argv = tuple(context.meta.get(AFTER, ()))
    variants = _variants(files, setting or [], Request("", argv, (), device, program, ring_slots, jitter=jitter))
    check_outputs([*files, *(files_of(measured) if measured else ())], results, html, plot)
    with progress_bar():
        before = None
        if measured is not None:
            before = before_of(measured, replace(variants[0], settings=()))
            variants = [replace(variant, base=before.base) for variant in variants]
        found = answers_of(variants, None if results is None else Path(results), engine, jobs)
        order = ranked(found)
        able = [one for one in order if one.error is None]
        title = title_of(files, chip.name, found)
        on_top = [] if before is None else list(anchor(*before))
        told: list[Part] = [*headline(order, found[0]), *rank(title, order, found[0], top, variants), *on_top]
        pages = {plot: lambda: parts_page("Variants", "rank", told)}
        comparison = names = None
        # against the first one named, or the next best where that one wins or does not run
        slower = [one for one in (found[0], *able) if one.error is None and one.wall_ns != able[0].wall_ns]
        if slower and ((why and not json) or html is not None):
            names = slower[0].candidate, able[0].candidate
            a, b = (Prediction(next(v for v in variants if v.name == name)) for name in names)
            comparison = compare_explained(a.explanation, b.explanation)
            first = [] if before is None else anchor_sections(*before)
            pages[html] = lambda: page(compare_document(names, comparison, first, (a.simulated, b.simulated)))
        written = write_reports(pages)
    if json:
        settings = {variant.name: dict(variant.settings) for variant in variants}
        rows = variant_rows(order, found[0], settings)
        print_json(rows if before is None else {"variants": rows, "anchor": anchor_dict(*before)})
    else:
        if comparison is not None and names is not None and why:
            told += why_it_wins(names, comparison)
        if html is not None and comparison is None:
            told.append(Say("Nothing to compare: fewer than two variants run, or all take equally long."))
        print_report(told, written)
    if not able:
        raise typer.Exit(1)


def _variants(files: list[str], setting: list[str], alike: Request) -> list[Request]:
    """Every file with every combination of values, in the order named; in all else they are alike."""
    from dataclasses import replace
    from itertools import product
    from math import prod
    from pathlib import Path

    from npuscope.base.errors import BadInput, NpuscopeError
    from npuscope.cli.output import names_of, values_of

    grid = values_of(setting, "--set")
    if len({Path(file).resolve() for file in files}) < len(files):
        raise NpuscopeError("a program is named twice", remedy="Its variants are those of --set.")
    if len(files) < 2 and not grid:
        remedy = "Name several programs, or values to try with --set; npuscope simulate times one as it is."
        raise NpuscopeError("one program is nothing to rank", remedy=remedy)
    for file in files:
        if not Path(file).is_file():
            raise BadInput("no such file", path=file)
    count = len(files) * prod(map(len, grid.values()))
    if count > MOST:
        raise NpuscopeError(f"{count:,} variants, more than {MOST:,}", remedy="Try fewer values at a time.")
    found = []
    names = names_of(files)
    for name, file in zip(names if len(set(names)) == len(files) else files, files, strict=True):
        for values in product(*grid.values()):
            chosen = tuple(zip(grid, values, strict=True))
            words = [name] * (len(files) > 1) + [f"{key}={value}" for key, value in chosen]
            found.append(replace(alike, name=" ".join(words), file=str(Path(file).resolve()), settings=chosen))
    return found
