"""Check a tile program: does it fit, is it safe, what is wasted.

With no NPU.

Examples:

  npuscope check decode_layer.py

  npuscope check decode_layer.py --select 'gm-*' --select shared-load -- --max-seq 4096

  npuscope check decode_layer.py --json

  npuscope check decode_layer.py --sarif check.sarif --md review.md

  npuscope check build_output/decode_layer   (the compiler's assembly: does it fit, do tiles overlap)

  npuscope check --list-rules, npuscope check --explain gm-round-trip

Exit code 1 where there is a finding at --level or worse: what does not fit, is not legal or is not safe is an error;
wrong numbers and large waste are warnings; the rest are hints. A comment `# npuscope: ignore[ID]` silences a rule on
its statement.
"""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from npuscope.answer.prediction import checks as checks_of
from npuscope.answer.request import Request
from npuscope.base.errors import NpuscopeError
from npuscope.base.process_memory import collected_rarely
from npuscope.check.run import reaches, rules_of
from npuscope.cli.output import (
    DeviceName,
    JsonFlag,
    MdFile,
    ProgramArguments,
    ProgramNumber,
    RingSlots,
    check_outputs,
    progress_bar,
    show,
)
from npuscope.lower.chip import chip_to_lower_for
from npuscope.report.check import check as report
from npuscope.report.check import check_data, check_sarif, rules_text
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
    arguments: ProgramArguments = None,
    device: DeviceName = "ascend910b1",
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
    program: ProgramNumber = None,
    values: Annotated[
        bool, typer.Option("--values/--shapes", help="Compute, where values decide what runs, or only record shapes.")
    ] = False,
    ring_slots: RingSlots = None,
    price: Annotated[
        bool,
        typer.Option("--price/--no-price", help="Simulate the program without each finding, or name no times."),
    ] = True,
    everything: Annotated[bool, typer.Option("--all", help="Every finding, not the costliest of each scope.")] = False,
    md: MdFile = None,
    sarif: Annotated[str | None, typer.Option("--sarif", help="Also write SARIF for code review here.")] = None,
    list_rules: Annotated[bool, typer.Option("--list-rules", help="Print the rules and leave.")] = False,
    explain: Annotated[
        str | None, typer.Option("--explain", help="Print what a rule finds and why, and leave.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    rules = rules_of(select or (), ignore or (), races)
    if list_rules:
        print(rules_text(rules))
        return
    if explain is not None:
        print("\n\n".join(rule_text(rule) for rule in rules_of((explain,))))
        return
    if file is None:
        raise NpuscopeError("no program to check", remedy="Name a Python file, or ask for --list-rules.")
    check_outputs([file], md, sarif)
    chip = chip_to_lower_for(device)
    with progress_bar(), collected_rarely():
        mode: Mode = "values" if values else "shapes"
        request = Request(file, tuple(arguments or ()), (), device, program, ring_slots, mode)
        checks = checks_of(request, rules, price, seed if replay else None)
    show(
        partial(report, file, chip.name, checks, everything),
        lambda: check_data(file, chip.name, checks),
        json=json,
        md=md,
        pages={sarif: lambda: check_sarif(checks, rules)},
    )
    if reaches(checks, level.value):
        raise typer.Exit(1)
