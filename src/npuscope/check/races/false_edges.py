"""Edges that order tasks for nothing: the two touch different elements, and no other way leads between them."""

from __future__ import annotations

from npuscope.check.once import once
from npuscope.check.races.conflicts import conflicts_of
from npuscope.check.races.order import closure
from npuscope.lower.program import Program

Pair = tuple[int, int]  # tasks: who is waited for, who waits


def inferred(program: Program) -> list[Pair]:
    """The edges that the runtime's map made, not the program."""
    return [(src, dst) for (src, dst), why in program.graph.pairs.items() if src >= 0 and "explicit" not in why]


@once
def false_edges(program: Program) -> frozenset[Pair]:
    """Those of them that make a task wait though the two share no element that one of them writes."""
    conflicts = conflicts_of(program)
    false = {(s, d) for s, d in inferred(program) if not (conflicts.needed[d] | conflicts.adds[d]) >> s & 1}
    if not false:
        return frozenset()
    without = closure(program.recording, program.graph, (pair for pair in program.graph.pairs if pair not in false))
    return frozenset((src, dst) for src, dst in false if not without.ordered(src, dst))
