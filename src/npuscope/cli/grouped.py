"""`npuscope --help`: the commands by the question they answer, each with its whole summary, then examples.

A command's summary is the first line of its module's docstring; a new command goes into GROUPS.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from typer.core import TyperGroup

from npuscope.cli import (
    align,
    calibrate,
    check,
    compare,
    convert,
    demo,
    device,
    doctor,
    formats,
    forward,
    gate,
    graph,
    guide,
    history,
    info,
    judge,
    lab,
    mcp,
    memory,
    models,
    ops,
    predict,
    rank,
    report,
    roofline,
    run,
    simulate,
    sweep,
    tpot,
    tune,
    view,
    whatif,
)

GROUPS: dict[str, tuple[ModuleType, ...]] = {
    "Explain a trace": (report, lab, view, compare, gate, history, forward, roofline, align),
    "Try a change without the chip": (
        judge, whatif, run, check, memory, graph, simulate, rank, sweep, tune, tpot, predict, calibrate
    ),
    "Captures and tools": (demo, info, doctor, convert, formats, models, device, ops, guide, mcp),
}  # fmt: skip
EXAMPLES = (
    ("npuscope demo --keep demo_out", "captures to try"),
    ("npuscope report demo_out/run", "where the time went"),
    ("npuscope compare demo_out/run demo_out/slow_scheduler", "what got slower"),
    ("npuscope simulate model:qwen3_14b/decode_layer", "the time on a chip"),
    ("npuscope COMMAND --help", "its options, examples"),
)


def name_of(module: ModuleType) -> str:
    """The command of a module."""
    return module.__name__.rpartition(".")[2]


def summary_of(module: ModuleType) -> str:
    """One line that says what a command does."""
    return (module.__doc__ or "").partition("\n")[0]


class Grouped(TyperGroup):
    """Shows the commands in groups; a summary is never cut off."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        # the names of all groups are as wide as the widest, so that summaries stand below one another
        width = max(map(len, self.list_commands(ctx)))
        for title, modules in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name_of(one).ljust(width), summary_of(one)) for one in modules])
        with formatter.section("Examples"):
            formatter.write_dl(EXAMPLES, col_max=60)
