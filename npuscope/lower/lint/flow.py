"""What flows where inside a body: every op is met in order, with the facts that its operands carry.

A loop is walked at most three times per segment, as far as an operand can look back, so the work grows with the stored
ops and not with iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npuscope.tile.record.model import Body, Loop, Op, Ref

ROUNDS = 3
Transfer = Callable[[Op, list[Any]], Any]  # an op and its operands' facts (None: none) -> its result's fact, no list
Frame = list[list[Any]]  # the iterations of a loop so far, each with the facts of its items; the last is under way


def follow(body: Body, transfer: Transfer) -> None:
    """Calls `transfer` for each op in the order of execution."""
    prologue = [transfer(op, []) for op in body.prologue]
    _walk(body.items, [[[]]], prologue, transfer)


def _walk(items: tuple[Op | Loop, ...], frames: list[Frame], prologue: list[Any], transfer: Transfer) -> None:
    facts = frames[-1][-1]
    for item in items:
        if isinstance(item, Op):
            facts.append(transfer(item, [_fact(operand, frames, prologue) for operand in item.operands]))
            continue
        turns: Frame = []
        for segment in item.segments:
            for _ in range(min(segment.count, ROUNDS)):
                turns.append([])
                _walk(segment.items, [*frames, turns], prologue, transfer)
        facts.append(turns[-1] if turns else [])


def _fact(operand: object, frames: list[Frame], prologue: list[Any]) -> Any:
    if not isinstance(operand, Ref):
        return None
    if operand.up < 0:
        return prologue[operand.path[0]] if operand.path[0] < len(prologue) else None
    turns = frames[-1 - operand.up]
    found: Any = turns[max(len(turns) - 1 - operand.back, 0)]
    for index in operand.path:
        if not isinstance(found, list) or index >= len(found):
            return None
        found = found[index]
    return None if isinstance(found, list) else found
