"""Loops written as sequential whose turns touch different memory, and wait for one another."""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding, Waste
from npuscope.check.rule import Example, Rule
from npuscope.check.source.changed_lines import loop_site, with_loop
from npuscope.check.traffic.loop_waits import if_parallel, needless_waits
from npuscope.check.wording.told import tensors_of
from npuscope.lower.program import Program
from npuscope.table.formats import many


def check(program: Program) -> Iterator[Finding]:
    for waits in needless_waits(program):
        if waits.kind != "range":
            continue
        task = program.recording.tasks[waits.tasks[0][0]]
        site, loop = loop_site(program, task, waits.depth)
        kept = tensors_of(program, if_parallel(program, waits))
        also = f", and give each turn its own slice of {kept}, written before the loop, else turns go on waiting for it"
        yield RULE.at(
            site,
            f"the turns of this sequential loop touch different memory, but {waits.waiting:,} of its tasks wait for an "
            f"earlier turn ({many(waits.pairs, 'wait')}): in a pl.range loop a tensor that is written counts as read "
            f"({tensors_of(program, waits.edges)})",
            f"Make it a pl.parallel loop{also if kept else ''}.",
            kernel=task.kernel,
            change=with_loop(loop, "parallel"),
            waste=Waste(waits=waits.waiting),
            count=len(waits.tasks),
        )


RULE = Rule(
    "sequential-independent",
    "hint",
    "sequential loop over independent turns",
    "Turns of a pl.range loop that write parts of one tensor wait for one another even where the parts are apart; "
    "in a pl.parallel loop they run side by side.",
    check,
    Example(
        "for i in pl.range(8):\n    with pl.at(level=CORE):\n        out = pl.assemble(out, tile, [i * 16, 0])",
        "for i in pl.parallel(8):\n    with pl.at(level=CORE):\n        out = pl.assemble(out, tile, [i * 16, 0])",
    ),
)
