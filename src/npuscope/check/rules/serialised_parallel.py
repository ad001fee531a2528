"""Loops written as parallel whose turns wait for one another though they touch different memory.

Loops that wait because of a sequential loop inside them are left to the finding about that one.
"""

from __future__ import annotations

from collections.abc import Iterator

from npuscope.check.findings import Finding, Waste
from npuscope.check.rule import Example, Rule
from npuscope.check.source.changed_lines import loop_site
from npuscope.check.traffic.loop_waits import LoopWaits, if_parallel, needless_waits
from npuscope.check.wording.told import tensors_of
from npuscope.lower.program import Program
from npuscope.table.formats import many


def check(program: Program) -> Iterator[Finding]:
    found = needless_waits(program)
    for waits in found:
        if waits.kind == "parallel":
            inner = (one for one in found if one.kind == "range" and one.depth > waits.depth)
            told = any(set(tasks) <= set(waits.tasks[0]) for one in inner for tasks in one.tasks)
            by_sequence = not if_parallel(program, waits, every=True)
            if not (told and by_sequence):
                yield _finding(program, waits, by_sequence)


def _finding(program: Program, waits: LoopWaits, by_sequence: bool) -> Finding:
    names = tensors_of(program, waits.edges)
    why = ", which counts as read, too, because of a pl.range loop around it" if by_sequence else ""
    task = program.recording.tasks[waits.tasks[0][0]]
    return RULE.at(
        loop_site(program, task, waits.depth)[0],
        f"the turns of this parallel loop touch different memory, but {waits.waiting:,} of its tasks wait for another "
        f"turn ({many(waits.pairs, 'wait')}): each is given the whole of {names}{why}",
        f"Give each turn its own slice of {names}, or take it out of the inference by no_dep_args= and name the waits "
        "that are needed with deps=.",
        kernel=task.kernel,
        waste=Waste(waits=waits.waiting),
        count=len(waits.tasks),
    )


RULE = Rule(
    "serialised-parallel",
    "warning",
    "parallel loop that is serialised by overlap",
    "A task that is given a whole tensor waits for every earlier writer of it, whatever part each of them touched.",
    check,
    Example(
        "for i in pl.parallel(8):\n"
        "    with pl.at(level=CORE):\n"
        "        state = pl.assemble(state, pl.add(pl.slice(state, [16, 64], [i * 16, 0]), 1.0), [i * 16, 0])",
        "for i in pl.parallel(8):\n"
        "    part = pl.slice(state, [16, 64], [i * 16, 0])  # the task's argument is the slice\n"
        "    with pl.at(level=CORE):\n"
        "        part = pl.assemble(part, pl.add(part, 1.0), [0, 0])",
    ),
)
