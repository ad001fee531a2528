"""How many turns of a loop are in flight, on each kind of core.

A pipelined loop runs `stage` turns side by side. Where its turns hand tiles both ways between the cores it does not:
the core that sends first runs ahead of the other by one turn less than there are stages, the other goes turn by turn.
(pypto docs/en/dev/passes/26-skew_cross_core_pipeline.md, 28-lower_pipeline_loops.md)
"""

from __future__ import annotations

from npuscope.lower.model import CoreKind, Items, Repeat, instructions
from npuscope.ops.spec import Role

LEAST_AHEAD = 2


def in_flight(loop: Repeat, turns: int, unit: CoreKind) -> int:
    """Of a loop with that many turns in all."""
    if loop.kind == "l0":
        return min(loop.stage, turns)
    if loop.kind != "pipeline" or loop.stage < 2:
        return 1
    if not crosses(loop.items):
        return min(loop.stage, turns)
    return _ahead(loop, turns) if _sends_first(loop.items, unit) else 1


def crosses(items: Items) -> bool:
    """Whether tiles go both ways between the cores."""
    return len({one.attribute("way") for one in instructions(items) if one.spec.is_a(Role.SEND)}) > 1


def _sends_first(items: Items, unit: CoreKind) -> bool:
    """Whether a core sends one tile, then takes one, and nothing but the tile it takes ties the two halves."""
    handed = [one for one in instructions(items) if one.unit == unit and one.spec.is_a(Role.SEND, Role.RECEIVE)]
    if len(handed) != 2 or not (handed[0].spec.is_a(Role.SEND) and handed[1].spec.is_a(Role.RECEIVE)):
        return False
    wanted = set(handed[0].reads)
    before = {id(handed[0])}  # what the sent tile is made by
    for one in reversed(list(instructions(items))):
        if one.result in wanted and one.unit == unit:
            before.add(id(one))
            wanted |= set(one.reads)
    made = {one.result for one in instructions(items) if id(one) in before}
    rest = (one for one in instructions(items) if one.unit == unit and id(one) not in before)
    return not any(made & set(one.reads) for one in rest)


def _ahead(loop: Repeat, turns: int) -> int:
    """Groups of turns must come out even, and be two at least."""
    for depth in range(max(LEAST_AHEAD, loop.stage - 1), 1, -1):
        if turns % depth == 0 and turns >= 2 * depth:
            return depth
    return 1
