"""Tasks that wait for one another though they touch different elements: the runtime knows whole tensors only.

An edge is false if the two tasks share no element that one of them writes, and costs something if no other way leads
from the one to the other. Turns of one loop at one launch are left to the rules about loops.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from npuscope.check.findings import Finding, Waste
from npuscope.check.races.false_edges import false_edges, inferred
from npuscope.check.rule import Example, Rule
from npuscope.check.wording.told import tensor_name
from npuscope.lower.program import Program
from npuscope.table.formats import many


@dataclass
class _Pair:
    """Edges of the runtime's map between two launches."""

    edges: int = 0
    false: int = 0
    waiting: set[int] = field(default_factory=set)
    tensors: dict[str, None] = field(default_factory=dict)


def check(program: Program) -> Iterator[Finding]:
    recording, costly = program.recording, false_edges(program)
    if not costly:
        return
    pairs: dict[tuple[str, int, str, int], _Pair] = defaultdict(_Pair)
    for src, dst in inferred(program):
        one, other = recording.tasks[src], recording.tasks[dst]
        if one.site != other.site or one.kernel != other.kernel:
            pair = pairs[one.kernel, one.site, other.kernel, other.site]
            pair.edges += 1
            if (src, dst) in costly:
                pair.false += 1
                pair.waiting.add(dst)
    for edge in program.graph.edges:
        if (edge.src, edge.dst) in costly and edge.buffer is not None:
            one, other = recording.tasks[edge.src], recording.tasks[edge.dst]
            if (key := (one.kernel, one.site, other.kernel, other.site)) in pairs:
                pairs[key].tensors[tensor_name(program, edge.buffer)] = None
    for (first, first_site, kernel, site), pair in pairs.items():
        if pair.false:
            yield _finding(program, (first, first_site), (kernel, site), pair)


def _finding(program: Program, first: tuple[str, int], later: tuple[str, int], pair: _Pair) -> Finding:
    place, before = program.site(later[1]), program.site(first[1])
    tensors = ", ".join(pair.tensors)
    waiting = f"{many(len(pair.waiting), 'task')} of {later[0]}"
    return RULE.at(
        place,
        f"{pair.false} of {pair.edges} edges from {first[0]} to {waiting} join tasks that touch different elements: "
        f"they are given {tensors} whole, and so wait",
        f"Slice {tensors} in the orchestration, before the launch, so that the slice is the argument.",
        kernel=later[0],
        waste=Waste(waits=len(pair.waiting)),
        count=pair.false,
        also=[before],
    )


RULE = Rule(
    "false-serialisation",
    "hint",
    "tasks that wait for each other though they touch different elements",
    "The runtime compares whole arguments, so a task that reads one tile of a tensor waits for the writers of all.",
    check,
    Example(
        "with pl.at(level=CORE):  # waits for all who wrote to mid\n"
        "    y = pl.assemble(y, pl.slice(mid, [16, 64], [0, 0]), [0, 0])",
        "part = pl.slice(mid, [16, 64], [0, 0])\n"
        "with pl.at(level=CORE):  # waits for who wrote these rows\n"
        "    y = pl.assemble(y, part, [0, 0])",
    ),
)
