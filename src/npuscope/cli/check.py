"""Check a tile program: does it fit, is it safe, what is wasted.

With no NPU.

Examples:

  npuscope check decode_layer.py

  npuscope check decode_layer.py --select 'gm-*' --select shared-load -- --max-seq 4096

  npuscope check decode_layer.py --json

  npuscope check decode_layer.py --sarif check.sarif --md review.md

  npuscope check decode_layer.py --fix   (patches, each tried: runs, right, fits, safe, faster)

  npuscope check decode_layer.py --fix --apply --commit   (those that help together, a commit each)

  npuscope check build_output/decode_layer   (the compiler's assembly: does it fit, do tiles overlap)

  npuscope check --list-rules, npuscope check --explain gm-round-trip

Exit code 1 where there is a finding at --level or worse: what does not fit, is not legal or is not safe is an error;
wrong numbers and large waste are warnings; the rest are hints. A comment `# npuscope: ignore[ID]` silences a rule on
its statement. `--fix` needs the extra `fix`: LibCST. It exits with 1 where no patch is offered, whatever the level.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from npuscope.answer.checks import checks as checks_of
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.base.process_memory import collected_rarely
from npuscope.check.rule import Rule
from npuscope.check.rules import all_rules
from npuscope.check.run import reaches, rules_of
from npuscope.cli import options
from npuscope.cli.output import check_outputs, progress_bar, show
from npuscope.lower.chip import chip_to_lower_for
from npuscope.models import program_file
from npuscope.report.check import check as report
from npuscope.report.check import check_data, check_sarif, first_answer, rules_text
from npuscope.report.reference import rule_text
from npuscope.tile.record.model import Mode


class SeverityLevel(StrEnum):
    error = "error"
    warning = "warning"
    hint = "hint"


def command(
    file: Annotated[
        str | None, typer.Argument(help="A tile program: a Python file; or a compiler's build folder.")
    ] = None,
    arguments: options.Arguments = None,
    device: options.ProgramDevice = "",
    select: Annotated[list[str] | None, typer.Option(help="Only these rules: ids, or prefix*; comma or again.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(help="Not these rules: ids, or prefix*; comma or again.")] = None,
    level: Annotated[
        SeverityLevel, typer.Option(help="Exit 1 for a finding as bad as this or worse.")
    ] = SeverityLevel.warning,
    races: Annotated[bool, typer.Option("--races/--no-races", help="Look for accesses that nothing orders.")] = True,
    replay: Annotated[
        bool, typer.Option("--replay", help="Run another legal order and show which outputs change.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Which other order --replay takes.")] = 0,
    program: options.ProgramNumber = None,
    runtime: options.Runtime = "",
    values: options.Values = False,
    ring_slots: options.RingSlots = None,
    price: Annotated[
        bool,
        typer.Option("--price/--no-price", help="Simulate the program without each finding, or name no times."),
    ] = True,
    everything: Annotated[bool, typer.Option("--all", help="Every finding, not the costliest of each scope.")] = False,
    fix: Annotated[bool, typer.Option("--fix", help="Try what would mend findings, and show it as patches.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Write the patches that help together; needs --fix.")] = False,
    commit: Annotated[
        bool, typer.Option("--commit", help="Each of them as a commit of its own; needs --apply.")
    ] = False,
    md: options.Md = None,
    sarif: options.Sarif = None,
    list_rules: Annotated[bool, typer.Option("--list-rules", help="Print the rules and leave.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", help="Print what a rule finds and why, and leave.")
    ] = None,
    json: options.Json = False,
) -> None:
    rules = rules_of(select or (), ignore or (), races)
    if list_rules:
        print(rules_text(rules if select or ignore or not races else all_rules()))
        return
    if explain is not None:
        print("\n\n".join(rule_text(rule) for rule in rules_of((explain,))))
        return
    if file is None:
        raise NpuscopeError("no program to check", remedy="Name a Python file, or ask for --list-rules.")
    if (apply and not fix) or (commit and not apply):
        raise NpuscopeError("--commit needs --apply, and --apply needs --fix")
    check_outputs([file], md, sarif)
    chip_to_lower_for(device)  # refused before anything runs
    mode: Mode = "values" if values else "shapes"
    request = Request(file, tuple(arguments or ()), (), device, program, ring_slots, mode, runtime=runtime)
    if fix:
        if replay or everything or not price:
            raise NpuscopeError("--fix goes with neither --replay nor --all nor --no-price")
        chosen = rules if select or ignore or not races else None
        request = replace(request, file=str(program_file(file).resolve()))
        _fix(file, request, chosen, apply, commit, md, sarif, json)
        return
    with progress_bar() as say, collected_rarely():
        planned = None if say is None else lambda one: say(first_answer(one.program.recording.program, one.unfit))
        checks = checks_of(request, rules, price, seed if replay else None, planned)
    show(
        partial(report, file, checks, everything),
        lambda: check_data(file, checks),
        json=json,
        md=md,
        pages={sarif: lambda: check_sarif(checks, rules)},
    )
    if reaches(checks, level.value):
        raise typer.Exit(1)


def _fix(
    file: str,
    request: Request,
    rules: Sequence[Rule] | None,
    apply: bool,
    commit: bool,
    md: str | None,
    sarif: str | None,
    json: bool,
) -> None:
    from npuscope.answer.fixes import mend
    from npuscope.report.fixes import fixes, fixes_data, fixes_sarif

    here = Path.cwd()
    with progress_bar():
        mending = mend(request, rules=None if rules is None else {one.id for one in rules})
    written: list[str] = []
    if apply:
        from npuscope.answer.improve import applied, best_together

        with progress_bar():
            steps = best_together(request, mending)
        written = applied(steps, commit)
    show(
        partial(fixes, file, mending, here, written),
        lambda: {**fixes_data(file, mending), "written": written},
        json=json,
        md=md,
        pages={sarif: lambda: fixes_sarif(mending, rules or all_rules())},
    )
    if not mending.offered:
        raise typer.Exit(1)
