"""The first form of a body, and which of its values lie in one storage.

One value per op that makes a tile, operands resolved to values. Where an op reads what an earlier turn made, the loop
carries it: the reader has a value for what the turn finds, and the Repeat says where that comes from. A carried tile
stays in one place where it can: the turn's new value overwrites the one it found. It cannot where the turn still reads
the old value afterwards; then the new one is copied over at the end of the turn. Accumulators cannot be copied, which
the rule illegal-move reports.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

from npuscope.lower.model import Carry, Instruction, Items, Lowered, Repeat, Value, instructions
from npuscope.lower.source import name_of
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.spec import Role
from npuscope.ops.transfers import COPY
from npuscope.tile.record.model import Body, Loop, Op, Recording, Site, Task
from npuscope.tile.record.walk import Operand, Step, steps_of

Carries = dict[tuple[tuple[int, ...], int], Carry]  # of a segment, by path and turns back


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

    add(body.prologue)
    add(body.items)
    return tuple(found)


class _Builder:
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
                line, carried = self.lines[item.site], tuple(own.values())
                made.append(Repeat(item.kind, loop, item.stage, line, segment.count, body, carried))
        return tuple(made)

    def _instruction(self, step: Step, carries: tuple[Carries, ...]) -> Instruction:
        op, first = step.op, self.accesses
        self.accesses += len(op.accesses)
        return Instruction(
            op.name,
            op.plane,
            self.lines[op.site],
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
    sites = sites_of(body)
    lines = {site: line for line, site in enumerate(sites)}
    builder = _Builder(steps_of(body), recording.sites, tensors, lines)
    items = keep_old(builder.items([*body.prologue, *body.items]), builder.values)
    storages = Storages(builder.values)
    for one in instructions(items):
        if one.result is not None and one.operands and one.operands[0] is not None and in_place(one):
            storages.join(one.operands[0], one.result)
    split, slots = task.split, task.ring_slots
    return Lowered(task.kernel, number, storages.applied(), items, split=split, ring_slots=slots, sites=sites)


class Storages:
    """Joins values; `applied` gives them with their storage."""

    def __init__(self, values: Sequence[Value]) -> None:
        self._values = tuple(values)
        self._parent = [value.storage for value in values]

    def of(self, value: int) -> int:
        root = value
        while self._parent[root] != root:
            root = self._parent[root]
        while self._parent[value] != root:
            self._parent[value], value = root, self._parent[value]
        return root

    def join(self, one: int, other: int) -> None:
        first, second = sorted((self.of(one), self.of(other)))
        self._parent[second] = first

    def applied(self) -> tuple[Value, ...]:
        return tuple(value._replace(storage=self.of(value.id)) for value in self._values)


LoopsAround = tuple[int, ...]  # the loops of several turns around a place, outermost first, by where they begin


@dataclass
class Needs:
    """Reads and makers of every value along the line of instructions; a read of a view is one of what it views."""

    items: Items
    reads: dict[int, list[tuple[int, LoopsAround]]] = field(default_factory=lambda: defaultdict(list))
    made: dict[int, LoopsAround] = field(default_factory=dict)  # value -> the loops around its maker
    place: dict[int, int] = field(default_factory=dict)  # id of an instruction or loop -> its place
    around: dict[int, LoopsAround] = field(default_factory=dict)  # id of an instruction or loop -> the loops around it
    _viewed: dict[int, int] = field(default_factory=dict)
    _next: int = 0

    def __post_init__(self) -> None:
        self._walk(self.items, ())

    def _walk(self, items: Items, around: LoopsAround) -> None:
        for item in items:
            here = self.place[id(item)] = self._next
            self.around[id(item)] = around
            self._next += 1
            if isinstance(item, Repeat):
                inside = (*around, here) if item.count > 1 else around
                for carry in item.carries:
                    self.made[carry.value] = inside
                    if carry.first is not None:
                        self._read(carry.first, here, around)
                self._walk(item.items, inside)
                for carry in item.carries:
                    self._read(carry.next, self._next, inside)
                self._next += 1
            else:
                self._instruction(item, here, around)

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

    def after(self, number: int, item: Instruction | Repeat) -> bool:
        """Whether anything reads a value after an item that overwrites it: later on, or in a loop's next turn."""
        here, around = self.place[id(item)], self.around[id(item)]
        while number in self._viewed:
            number = self._viewed[number]
        outer = self.made.get(number, ())
        for place, loops in self.reads[number]:
            if place > here:
                return True
            shared = [loop for loop, other in zip(around, loops, strict=False) if loop == other and loop not in outer]
            if shared:
                return True
        return False


def in_place(one: Instruction) -> bool:
    """A cast of plane "move" is an accumulator seen in the type that it will leave in."""
    return one.spec.storage == "operand" or (one.spec.is_a(Role.CAST) and one.plane == "move")


def keep_old(items: Items, values: list[Value]) -> Items:
    """A tile that is written to though it is still needed as it was is copied before.

    Sums are left alone: accumulators cannot be copied, which `legal` reports.
    """
    return _kept(items, values, Needs(items))


def _kept(items: Items, values: list[Value], needs: Needs) -> Items:
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Repeat):
            made.append(replace(item, items=_kept(item.items, values, needs)))
            continue
        writes = item.spec.is_a(Role.WRITES_INTO) and item.result is not None and item.operands
        old = item.operands[0] if writes else None
        if old is not None and needs.after(old, item):
            value = values[old]._replace(id=len(values), storage=len(values))
            values.append(value)
            made.append(Instruction(COPY.name, COPY.plane, item.site, (old,), value.id))
            item = item._replace(operands=(value.id, *item.operands[1:]))
        made.append(item)
    return tuple(made)


def settle_carries(lowered: Lowered) -> Lowered:
    """Joins what is carried in place, inserts a copy for the rest."""
    values = list(lowered.values)
    items = _begun(lowered.items, values, Needs(lowered.items))
    storages = Storages(values)
    makers = {one.result: one for one in instructions(items) if one.result is not None}
    items = _settled(items, storages, values, Needs(items), makers)
    return replace(lowered, items=items, values=storages.applied())


def _begun(items: Items, values: list[Value], needs: Needs) -> Items:
    """Loops begin with a copy of what they will write over though it is still needed."""
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Instruction):
            made.append(item)
            continue
        carries = []
        for carry in item.carries:
            if carry.first is not None and needs.after(carry.first, item):
                value = values[carry.first]._replace(id=len(values), storage=len(values))
                values.append(value)
                made.append(Instruction(COPY.name, COPY.plane, item.site, (carry.first,), value.id))
                carry = carry._replace(first=value.id)
            carries.append(carry)
        made.append(replace(item, items=_begun(item.items, values, needs), carries=tuple(carries)))
    return tuple(made)


def _settled(
    items: Items, storages: Storages, values: list[Value], needs: Needs, makers: dict[int, Instruction]
) -> Items:
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Instruction):
            made.append(item)
            continue
        inner = _settled(item.items, storages, values, needs, makers)
        own = {one.result for one in instructions(inner)}
        copies = []
        taken: set[int] = set()
        for carry in item.carries:
            if carry.first is not None:
                storages.join(carry.first, carry.value)
            fresh = carry.next in own and not needs.after(carry.value, makers[carry.next])
            if carry.next in taken or not fresh:
                value = values[carry.next]
                copies.append(Instruction(COPY.name, COPY.plane, value.site, (carry.next,), carry.value))
            else:
                storages.join(carry.value, carry.next)
                taken.add(carry.next)
        made.append(replace(item, items=(*inner, *copies)))
    return tuple(made)
