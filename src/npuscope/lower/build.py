"""The first form of a body, and which of its values lie in one storage.

One value per op that makes a tile, operands resolved to values. Where an op reads what an earlier turn made, the loop
carries it: the reader has a value for what the turn finds, and the Repeat says where that comes from. A carried tile
stays in one place where it can: the turn's new value overwrites the one it found. It cannot where the turn still reads
the old value afterwards; then the new one is copied over at the end of the turn. Accumulators cannot be copied, which
the rule illegal-move reports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod

from npuscope.lower.model import (
    Instruction,
    Items,
    LoopCarry,
    Lowered,
    Repeat,
    Value,
    add_value,
    carries,
    instructions,
    rewritten,
)
from npuscope.lower.source import name_of
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.shaping import CREATE
from npuscope.ops.spec import OpRole
from npuscope.ops.transfers import COPY
from npuscope.tile.record.model import Body, Loop, Op, Recording, Site, Task
from npuscope.tile.record.walk import Step, StepOperand, steps_of

Carries = dict[tuple[tuple[int, ...], int], LoopCarry]  # of a segment, by path and turns back
LoopsAround = tuple[int, ...]  # the loops of several turns around a place, outermost first, by where they begin


def build(recording: Recording, task: Task, number: int) -> Lowered:
    """One of the bodies of a task before anything is decided."""
    body = recording.bodies[number]
    tensors = tuple(recording.buffers[argument.buffer].name for argument in task.arguments)
    sites = sites_of(body)
    lines = {site: line for line, site in enumerate(sites)}
    builder = _Builder(steps_of(body), recording.sites, tensors, lines)
    items = _without_unused(builder.items([*body.prologue, *body.items]))
    items = _keep_old(items, builder.values)
    joined = [
        (one.operands[0], one.result)
        for one in instructions(items)
        if one.result is not None and one.operands and one.operands[0] is not None and _in_place(one)
    ]
    values = with_storages(builder.values, joined)
    return Lowered(task.kernel, number, values, items, (), task.split, task.ring_slots, sites, task.ring_bytes)


def _without_unused(items: Items) -> Items:
    """Without buffers that are made and never used, as a sum's that its first product makes anew."""
    used = {number for one in instructions(items) for number in one.reads}
    used |= {number for carry in carries(items) for number in (carry.first, carry.next) if number is not None}
    return rewritten(items, lambda one: () if one.spec is CREATE and one.result not in used else (one,))


def name_of_result(op: Op, sites: tuple[Site, ...], tensors: tuple[str, ...]) -> str:
    """What the user calls the tile that an op makes; one that is loaded has its tensor's name."""
    return tensors[op.accesses[0].argument] if op.accesses else name_of(sites[op.site], op.name)


def sites_of(body: Body) -> tuple[int, ...]:
    """The recording's numbers of a body's lines, each once, in the order in which they are met."""
    found: dict[int, None] = {}

    def add(items: Sequence[Op | Loop]) -> None:
        for item in items:
            found[item.site] = None
            for segment in item.segments if isinstance(item, Loop) else ():
                add(segment.items)

    add((*body.prologue, *body.items))
    return tuple(found)


class _Builder:
    """`lines`: the body's number of each of the recording's sites."""

    def __init__(
        self, steps: tuple[Step, ...], sites: tuple[Site, ...], tensors: tuple[str, ...], lines: dict[int, int]
    ) -> None:
        self.steps, self.sites, self.tensors, self.lines = steps, sites, tensors, lines
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
        value = Value(number, name, tile.shape, tile.dtype, self.lines[op.site], number, space, said=bool(space))
        staged = dict(op.attributes).get("staged")  # a copy through the chip, piece by piece
        if isinstance(staged, tuple):
            value = value._replace(bytes=BY_NAME[tile.dtype].size(prod(staged)))
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
                inner: Carries = {}
                body = self.items(segment.items, (*carries, inner))
                line, found = self.lines[item.site], tuple(inner.values())
                made.append(Repeat(item.kind, loop, item.stage, line, segment.count, body, found))
        return tuple(made)

    def _instruction(self, step: Step, carries: tuple[Carries, ...]) -> Instruction:
        op, first = step.op, self.accesses
        self.accesses += len(op.accesses)
        operands = tuple(self._operand(operand, carries) for operand in step.operands)
        result = self.made.get(step.number)
        first, line = first if op.accesses else -1, self.lines[op.site]
        return Instruction(
            op.name, op.plane, line, operands, result, (), op.accesses, first, op.attributes, op.flops
        )  # fmt: skip

    def _operand(self, operand: StepOperand, carries: tuple[Carries, ...]) -> int | None:
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
        carried = carries[-1 - ref.up]
        if (ref.path, ref.back) not in carried:
            following = self.made[again]
            number = add_value(self.values, self.values[following])
            carried[ref.path, ref.back] = LoopCarry(number, first, following)
        return carried[ref.path, ref.back].value

    def _place(self, step: int) -> tuple[int, str]:
        op = self.steps[step].op
        return op.site, op.name


def with_storages(values: Sequence[Value], joined: Iterable[tuple[int, int]]) -> tuple[Value, ...]:
    """The values with those of each pair in one storage, which is known by its earliest value."""
    parent = [value.storage for value in values]

    def root(number: int) -> int:
        while parent[number] != number:
            parent[number] = number = parent[parent[number]]
        return number

    for pair in joined:
        first, second = sorted(map(root, pair))
        parent[second] = first
    return tuple(value._replace(storage=root(value.id)) for value in values)


class _Needs:
    """Whether a value is still needed at some place of a body: what may be written over and what not.

    Reads and makers of every value along the line of instructions; a read of a view is one of what it views.
    """

    def __init__(self, items: Items) -> None:
        self.reads: dict[int, list[tuple[int, LoopsAround]]] = defaultdict(list)
        self.made: dict[int, LoopsAround] = {}  # value -> the loops around its maker
        self.place: dict[int, tuple[int, LoopsAround]] = {}  # id of an instruction or loop -> place, loops around it
        self._viewed: dict[int, int] = {}
        self._next = 0
        self._walk(items, ())

    def after(self, number: int, item: Instruction | Repeat) -> bool:
        """Whether anything reads a value after an item that overwrites it: later on, or in a loop's next turn."""
        here, around = self.place[id(item)]
        while number in self._viewed:
            number = self._viewed[number]
        outer = self.made.get(number, ())
        for place, loops in self.reads[number]:
            shared = (loop for loop, other in zip(around, loops, strict=False) if loop == other and loop not in outer)
            if place > here or any(True for _ in shared):
                return True
        return False

    def _walk(self, items: Items, around: LoopsAround) -> None:
        for item in items:
            here = self._next
            self.place[id(item)] = here, around
            self._next += 1
            if isinstance(item, Instruction):
                self._instruction(item, here, around)
                continue
            inside = (*around, here) if item.count > 1 else around
            for carry in item.carries:
                self.made[carry.value] = inside
                if carry.first is not None:
                    self._read(carry.first, here, around)
            self._walk(item.items, inside)
            for carry in item.carries:
                self._read(carry.next, self._next, inside)
            self._next += 1

    def _instruction(self, one: Instruction, here: int, around: LoopsAround) -> None:
        for number in one.reads:
            self._read(number, here, around)
        if one.result is not None:
            self.made[one.result] = around
            if one.plane == "view" and one.operands and one.operands[0] is not None:
                self._viewed[one.result] = one.operands[0]

    def _read(self, number: int, here: int, around: LoopsAround) -> None:
        self.reads[number].append((here, around))
        while number in self._viewed:
            number = self._viewed[number]
            self.reads[number].append((here, around))


def _in_place(one: Instruction) -> bool:
    """Whether a result is the storage of the first operand: a view, a sum in the accumulator, a tile written to.

    A cast of plane "move" is an accumulator seen in the type that it will leave in.
    """
    return one.spec.storage == "operand" or (one.spec.is_a(OpRole.CAST) and one.plane == "move")


def _copy(source: int, result: int, site: int) -> Instruction:
    return Instruction(COPY.name, COPY.plane, site, (source,), result)


def _keep_old(items: Items, values: list[Value]) -> Items:
    """A tile that is written to though it is still needed as it was is copied before; sums are left as they are."""
    needs = _Needs(items)

    def each(one: Instruction) -> Iterator[Instruction]:
        writes = one.spec.is_a(OpRole.WRITES_INTO) and one.plane != "view" and one.result is not None and one.operands
        old = one.operands[0] if writes else None
        if old is not None and needs.after(old, one):
            copy = add_value(values, values[old])
            yield _copy(old, copy, one.site)
            one = one._replace(operands=(copy, *one.operands[1:]))
        yield one

    return rewritten(items, each)


def settle_carries(lowered: Lowered) -> Lowered:
    """Joins what loops carry in place, inserts a copy for the rest.

    A value from before the loop that is still needed afterwards is copied before it.
    """
    values, needs = list(lowered.values), _Needs(lowered.items)
    makers = {one.result: one for one in lowered.instructions}
    joined: list[tuple[int, int]] = []

    def settled(items: Items) -> Items:
        made: list[Instruction | Repeat] = []
        for item in items:
            if isinstance(item, Instruction):
                made.append(item)
                continue
            carries = []
            for carry in item.carries:
                if carry.first is not None and needs.after(carry.first, item):
                    copy = add_value(values, values[carry.first])
                    made.append(_copy(carry.first, copy, item.site))
                    carry = carry._replace(first=copy)
                carries.append(carry)
            inner = settled(item.items)
            results = {one.result for one in instructions(inner)}
            copies = []
            taken: set[int] = set()
            for carry in carries:
                if carry.first is not None:
                    joined.append((carry.first, carry.value))
                fresh = carry.next in results and not needs.after(carry.value, makers[carry.next])
                if carry.next in taken or not fresh:
                    copies.append(_copy(carry.next, carry.value, values[carry.next].site))
                else:
                    joined.append((carry.value, carry.next))
                    taken.add(carry.next)
            made.append(replace(item, items=(*inner, *copies), carries=tuple(carries)))
        return tuple(made)

    items = settled(lowered.items)
    return replace(lowered, items=items, values=with_storages(values, joined))
