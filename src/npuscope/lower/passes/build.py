"""The first form of a body: one value per op that makes a tile, operands resolved to values.

Where an op reads what an earlier turn made, the loop carries it: the reader has a value of its own for what the turn
finds, and the Repeat says where that comes from.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from npuscope.lower.model import Carry, Instruction, Items, Lowered, Repeat, Value, instructions
from npuscope.lower.passes.in_place import in_place, keep_old
from npuscope.lower.passes.storages import Storages
from npuscope.lower.source import name_of
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import Loop, Op, Recording, Site, Task
from npuscope.tile.record.operands import Operand, Step, steps_of

Carries = dict[tuple[tuple[int, ...], int], Carry]  # of a segment, by path and turns back


def name_of_result(op: Op, sites: tuple[Site, ...], tensors: tuple[str, ...]) -> str:
    """What the user calls the tile that an op makes; one that is loaded has its tensor's name."""
    return tensors[op.accesses[0].argument] if op.accesses else name_of(sites[op.site], op.name)


class _Builder:
    def __init__(self, steps: tuple[Step, ...], sites: tuple[Site, ...], tensors: tuple[str, ...]) -> None:
        self.steps, self.sites, self.tensors = steps, sites, tensors
        self.values: list[Value] = []
        # Values for all steps first: one may read what a later one made in the turn before.
        self.made = {step.number: self._value(step.op) for step in steps if step.op.result is not None}
        self.next = iter(steps)
        self.accesses = 0
        self.loops = 0

    def _value(self, op: Op) -> int:
        tile = op.result
        assert tile is not None
        number = len(self.values)
        name = name_of_result(op, self.sites, self.tensors)
        space = tile.space or ""
        value = Value(number, name, tile.shape, tile.dtype, op.site, number, space, said=bool(space))
        staged = dict(op.attributes).get("staged")  # a copy through the chip, piece by piece
        if isinstance(staged, tuple):
            value = value._replace(bytes=prod(staged) * BY_NAME[tile.dtype].bytes)
        self.values.append(value)
        return number

    def items(self, items: Sequence[Op | Loop], carries: tuple[Carries, ...] = ()) -> Items:
        """`carries`: of the loops around, outermost first."""
        made: list[Instruction | Repeat] = []
        for item in items:
            if isinstance(item, Op):
                made.append(self._instruction(next(self.next), carries))
                continue
            self.loops += 1
            loop = self.loops
            for segment in item.segments:
                own: Carries = {}
                body = self.items(segment.items, (*carries, own))
                made.append(Repeat(item.kind, loop, item.stage, item.site, segment.count, body, tuple(own.values())))
        return tuple(made)

    def _instruction(self, step: Step, carries: tuple[Carries, ...]) -> Instruction:
        op, first = step.op, self.accesses
        self.accesses += len(op.accesses)
        return Instruction(
            op.name,
            op.plane,
            op.site,
            tuple(self._operand(operand, carries) for operand in step.operands),
            self.made.get(step.number),
            (),
            op.accesses,
            first if op.accesses else -1,
            op.attributes,
            op.flops,
        )

    def _operand(self, operand: Operand, carries: tuple[Carries, ...]) -> int | None:
        ref = operand.ref
        if ref is None:
            return None
        if operand.now is not None:
            return self.made[operand.now]
        before, again = next(iter(operand.before), None), operand.again
        first = None if before is None else self.made[before]
        if again is None:
            return first
        # Two turns ago or more: what one op makes anew in every turn, or what an op of an early turn made for all.
        if ref.back > 1 and before is not None and self._place(before) != self._place(again):
            return first
        own = carries[-1 - ref.up]
        if (ref.path, ref.back) not in own:
            number, following = len(self.values), self.made[again]
            self.values.append(self.values[following]._replace(id=number, storage=number))
            own[ref.path, ref.back] = Carry(number, first, following)
        return own[ref.path, ref.back].value

    def _place(self, step: int) -> tuple[int, str]:
        op = self.steps[step].op
        return op.site, op.name


def build(recording: Recording, task: Task, number: int) -> Lowered:
    """One of the bodies of a task before anything is decided."""
    body = recording.bodies[number]
    tensors = tuple(recording.buffers[argument.buffer].name for argument in task.arguments)
    builder = _Builder(steps_of(body), recording.sites, tensors)
    items = keep_old(builder.items([*body.prologue, *body.items]), builder.values)
    storages = Storages(builder.values)
    for one in instructions(items):
        if one.result is not None and one.operands and one.operands[0] is not None and in_place(one):
            storages.join(one.operands[0], one.result)
    split, slots = task.split, task.ring_slots
    return Lowered(task.kernel, number, storages.applied(), items, split=split, ring_slots=slots)
