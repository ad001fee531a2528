"""The first form of a body: one value per op that makes a tile, operands resolved to values.

Where an op reads what an earlier turn made, the loop carries it: the reader has a value of its own for what the turn
finds, and the Repeat says where that comes from.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

from npuscope.lower.model import Carry, Instruction, Items, Lowered, Repeat, Value, instructions
from npuscope.lower.passes.in_place import in_place, keep_old
from npuscope.lower.passes.storages import Storages
from npuscope.lower.source import name_of
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import Body, Loop, Op, Recording, Ref, Site, Task

Numbers = list[Any]  # per item the number of its value (None where it makes none), or per segment of a loop its Numbers


@dataclass(frozen=True)
class _Frame:
    """A turn of a loop while its ops are resolved: the values of its segment and of the segments before, with how
    many turns each has.
    """

    own: Numbers
    before: tuple[tuple[int, Numbers], ...]
    repeats: bool
    carries: dict[tuple[tuple[int, ...], int], Carry] = field(default_factory=dict)  # by path and turns back


class _Builder:
    def __init__(self, sites: tuple[Site, ...], tensors: tuple[str, ...]) -> None:
        self.sites, self.tensors = sites, tensors
        self.values: list[Value] = []
        self.makers: dict[int, tuple[int, str]] = {}  # value -> place and name of the op that makes it
        self.prologue: Numbers = []
        self.accesses = 0
        self.loops = 0

    def number(self, items: tuple[Op | Loop, ...]) -> Numbers:
        """Values for all ops first: an op may read what a later op of the turn before made."""
        return [
            self._value(item) if isinstance(item, Op) else [self.number(segment.items) for segment in item.segments]
            for item in items
        ]

    def _value(self, op: Op) -> int | None:
        tile = op.result
        if tile is None:
            return None
        number = len(self.values)
        name = self.tensors[op.accesses[0].argument] if op.accesses else name_of(self.sites[op.site], op.name)
        space = tile.space or ""
        value = Value(number, name, tile.shape, tile.dtype, op.site, number, space, said=bool(space))
        staged = dict(op.attributes).get("staged")  # a copy through the chip, piece by piece
        if isinstance(staged, tuple):
            value = replace(value, bytes=prod(staged) * BY_NAME[tile.dtype].bytes)
        self.values.append(value)
        self.makers[number] = (op.site, op.name)
        return number

    def items(self, items: tuple[Op | Loop, ...], numbers: Numbers, frames: tuple[_Frame, ...]) -> Items:
        made: list[Instruction | Repeat] = []
        for item, number in zip(items, numbers, strict=True):
            if isinstance(item, Op):
                made.append(self._instruction(item, number, frames))
                continue
            self.loops += 1
            loop = self.loops
            before: tuple[tuple[int, Numbers], ...] = ()
            for segment, own in zip(item.segments, number, strict=True):
                frame = _Frame(own, before, segment.count > 1)
                body = self.items(segment.items, own, (*frames, frame))
                carries = tuple(frame.carries.values())
                made.append(Repeat(item.kind, loop, item.stage, item.site, segment.count, body, carries))
                before = (*before, (segment.count, own))
        return tuple(made)

    def _instruction(self, op: Op, result: int | None, frames: tuple[_Frame, ...]) -> Instruction:
        operands = tuple(self._operand(operand, frames) for operand in op.operands)
        first = self.accesses
        self.accesses += len(op.accesses)
        return Instruction(
            op.name,
            op.plane,
            op.site,
            operands,
            result,
            (),
            op.accesses,
            first if op.accesses else -1,
            op.attributes,
            op.flops,
        )

    def _operand(self, operand: object, frames: tuple[_Frame, ...]) -> int | None:
        if not isinstance(operand, Ref):
            return None
        if operand.up < 0:
            return _at(self.prologue, operand.path)
        frame = frames[-1 - operand.up]
        if not operand.back:
            return _at(frame.own, operand.path)
        first = _earlier(frame, operand)
        following = _at(frame.own, operand.path)
        if not frame.repeats or following is None:
            return first
        # Two turns ago or more: what one op makes anew in every turn, or what an op of an early turn made for all.
        if operand.back > 1 and first is not None and self.makers[first] != self.makers[following]:
            return first
        known = frame.carries.get((operand.path, operand.back))
        if known is None:
            number = len(self.values)
            self.values.append(replace(self.values[following], id=number, storage=number))
            known = frame.carries[operand.path, operand.back] = Carry(number, first, following)
        return known.value


def _earlier(frame: _Frame, operand: Ref) -> int | None:
    """The value that the first turn of a segment finds, made that many turns ago; more than two is told as two."""
    ago = 0
    for count, numbers in reversed(frame.before):
        ago += count
        found = _at(numbers, operand.path) if ago >= operand.back else None
        if found is not None or (ago >= operand.back == 1):
            return found
    return None


def _at(numbers: Numbers, path: tuple[int, ...]) -> int | None:
    """The value at a path; inside a loop that is the last turn's that has one there (a turn may leave out ops)."""
    place = numbers[path[0]] if path[0] < len(numbers) else None
    if len(path) == 1:
        return place if isinstance(place, int) else None
    segments: list[Numbers] = place if isinstance(place, list) else []
    found = (_at(segment, path[1:]) for segment in reversed(segments))
    return next((number for number in found if number is not None), None)


def build(recording: Recording, task: Task, number: int) -> Lowered:
    """One of the bodies of a task before anything is decided. Tiles loaded from GM have their tensor's name."""
    body: Body = recording.bodies[number]
    tensors = tuple(recording.buffers[argument.buffer].name for argument in task.arguments)
    builder = _Builder(recording.sites, tensors)
    builder.prologue = builder.number(body.prologue)
    top = builder.number(body.items)
    frame = _Frame(top, (), repeats=False)
    prologue = builder.items(body.prologue, builder.prologue, (frame,))
    items = prologue + builder.items(body.items, top, (frame,))
    items = keep_old(items, builder.values)
    storages = Storages(builder.values)
    for one in instructions(items):
        if one.result is not None and one.operands and one.operands[0] is not None and in_place(one):
            storages.join(one.operands[0], one.result)
    split, slots = task.split, task.ring_slots
    return Lowered(task.kernel, number, storages.applied(), items, split=split, ring_slots=slots)
