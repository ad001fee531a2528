"""Other orders that the graph allows, as phases: lists of tasks, each run in the order of the program.

Atomic adds into one element keep the program's order where they can, so that what changes is no rounding.
"""

from __future__ import annotations

from random import Random

from npuscope.check.races.conflicts import conflicts_of, ones
from npuscope.check.races.order import Order, closure, order_of
from npuscope.lower.program import Program

Phases = tuple[frozenset[int], ...]
SEVERAL = 3  # phases of a random order: each is a run of the whole program


def later_first(program: Program, earlier: int, later: int) -> Phases:
    """The later task of a race, with all before it that need not wait for the earlier one; then that one and the rest.

    So the earlier task and what follows from it come late, and everything else keeps the order of the program.
    """
    before = with_adds(program).before
    if before[later] >> earlier & 1:  # both add, besides what they race for
        before = order_of(program).before
    first = frozenset(task for task in range(later + 1) if not before[task] >> earlier & 1)
    return first, frozenset(range(len(before))) - first


def random_order(program: Program, seed: int) -> Phases:
    """A legal order drawn by chance, the same for the same seed."""
    draw = Random(seed)
    phases = [0] * SEVERAL  # bitsets
    for task, before in enumerate(with_adds(program).before):
        least = max((n for n, tasks in enumerate(phases) if tasks & before), default=0)
        phases[max(least, draw.randrange(SEVERAL))] |= 1 << task
    return tuple(frozenset(ones(tasks)) for tasks in phases)


def with_adds(program: Program) -> Order:
    """The order of the graph and of atomic adds into one element."""
    adds = [(one, task) for task, mask in enumerate(conflicts_of(program).adds) for one in ones(mask) if one != task]
    return closure(program.recording, program.graph, [*program.graph.pairs, *adds])
