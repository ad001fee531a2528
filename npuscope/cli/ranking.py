"""What `rank` and `sweep` share: simulate all variants, print them in order, and say why the first one wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from npuscope.cli.output import print_json, print_text
from npuscope.cli.progress_bar import progress_bar

if TYPE_CHECKING:
    from npuscope.simulate.variants import Variant

Device = Annotated[str, typer.Option(help="The chip: a name, or a TOML file of your own.")]
Program = Annotated[int | None, typer.Option("--program", help="Which of several that a file runs, counted from 0.")]
RingSlots = Annotated[int | None, typer.Option("--ring-slots", min=1, help="Depth of the cross-core ring.")]
Jitter = Annotated[int | None, typer.Option("--jitter", min=0, help="Noise on the blocks' times, with this seed.")]
Results = Annotated[
    str | None, typer.Option("--results", help="Keep results here (JSON lines); those that stand there are not run.")
]
Engine = Annotated[str, typer.Option(help="processes, or ray (npuscope[ray], RAY_ADDRESS).")]
Jobs = Annotated[int | None, typer.Option(min=1, help="Variants at a time; all cores unless given.")]
Top = Annotated[int, typer.Option(min=1, help="Variants shown.")]
Why = Annotated[bool, typer.Option("--why/--no-why", help="Compare the fastest with the first one named.")]


def rank_variants(
    title: str,
    variants: Sequence[Variant],
    *,
    results: str | None,
    engine: str,
    jobs: int | None,
    top: int,
    why: bool,
    html: str | None,
    json: bool,
) -> None:
    from pathlib import Path

    from npuscope.analysis.comparison import compare_explained
    from npuscope.analysis.explanation import explain
    from npuscope.cli.output import check_outputs, write_reports
    from npuscope.report.html import compare_page
    from npuscope.report.rank_text import rank_text, why_text
    from npuscope.simulate.variants import outcomes, ranked, simulated

    check_outputs([variant.file for variant in variants], results, html)
    with progress_bar():
        found = outcomes(variants, None if results is None else Path(results), engine, jobs)
        order = ranked(found)
        able = [one for one in order if one.error is None]
        comparison, names = None, ("", "")
        # against the first one named, or the next best where that one wins or does not run
        slower = [one for one in (found[0], *able) if one.error is None and one.wall_ns != able[0].wall_ns]
        if slower and ((why and not json) or html is not None):
            names = (slower[0].variant, able[0].variant)
            pair = [next(v for v in variants if v.name == name) for name in names]
            both = [explain(simulated(variant).trace) for variant in pair]
            comparison = compare_explained(both[0], both[1])
        written = write_reports({} if comparison is None else {html: lambda: compare_page(names, comparison)})
    if json:
        print_json([one.as_dict() for one in order])
    else:
        text = rank_text(title, order, found[0], top)
        if comparison is not None and why:
            text += f"\n\n{why_text(names, comparison)}"
        print_text(text, written)
    if not able:
        raise typer.Exit(1)
