"""A body on its way to the core: values with a place, instructions with a pipe, loops with a depth.

Every pass takes a `Lowered` and gives a `Lowered`; nothing is changed in place. A `Value` is one tile; values that
must lie in the same storage (a view, an accumulator added to in place, a value carried round a loop) name the same
`storage`. Positions of GM accesses stay in the recording: `first_access` counts the accesses of the body, as the
offsets of a BlockGroup do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from npuscope.ops.spec import OpSpec, Plane
from npuscope.ops.table import BY_NAME
from npuscope.tile.record.model import Access

CoreKind = Literal["AIC", "AIV"]
Pipe = Literal["MTE2", "MTE1", "M", "FIXP", "V", "MTE3", "S"]
RingWay = Literal["C2V", "V2C"]
Items = tuple["Instruction | Repeat", ...]


class Value(NamedTuple):
    """A tile on chip: `bytes` is what it takes there, padding included; `space` is "" until it is placed."""

    id: int
    name: str
    shape: tuple[int, ...]
    dtype: str
    site: int
    storage: int
    space: str = ""
    bytes: int = 0
    in_ring: bool = False  # lies in a slot of the ring between the cores
    said: bool = False  # the program says its space


class Instruction(NamedTuple):
    """`operands` are the values it reads in the op's order, None where the op was given a number or nothing."""

    name: str
    plane: Plane
    site: int
    operands: tuple[int | None, ...] = ()
    result: int | None = None
    scratch: tuple[int, ...] = ()  # values it needs while it runs
    accesses: tuple[Access, ...] = ()
    first_access: int = -1
    attributes: tuple[tuple[str, object], ...] = ()
    flops: int = 0
    unit: CoreKind | None = None
    pipe: Pipe | None = None

    @property
    def spec(self) -> OpSpec:
        """What the op is; lowering makes a few that no program has, such as `copy`."""
        return BY_NAME[self.name]

    @property
    def reads(self) -> tuple[int, ...]:
        return tuple(value for value in self.operands if value is not None)

    def attribute(self, name: str) -> object:
        return dict(self.attributes).get(name)


class LoopCarry(NamedTuple):
    """`value` is what a turn finds: `first` in the first turn, what the turn before left as `next` in the others."""

    value: int
    first: int | None
    next: int


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` turns of a loop; the turns of one loop with another structure are a Repeat of their own.

    `loop` is the same for all of those. `stage` turns are in flight at once.
    """

    kind: Literal["range", "pipeline", "unroll", "while", "split_aiv", "l0"]
    loop: int
    stage: int
    site: int
    count: int
    items: Items
    carries: tuple[LoopCarry, ...] = ()


@dataclass(frozen=True, slots=True)
class Ring:
    """Slots that tiles pass through from one core to the other; `space` is where the receiver keeps them."""

    direction: RingWay
    space: str
    slot: int  # bytes
    slots: int
    kept: int = 0  # bytes of the receiver, where the program says how many

    @property
    def bytes(self) -> int:
        return self.kept or self.slot * self.slots


@dataclass(frozen=True)
class Lowered:
    """One body of one kernel, as far as it has been lowered.

    Lines are numbered inside the body, so that equal bodies are equal wherever they stand; `sites` has the recording's
    number of each.
    """

    kernel: str
    body: int
    values: tuple[Value, ...]
    items: Items
    rings: tuple[Ring, ...] = ()
    split: str = ""
    ring_slots: int = 0
    sites: tuple[int, ...] = ()
    ring_bytes: tuple[int, int] = (0, 0)

    @cached_property
    def instructions(self) -> tuple[Instruction, ...]:
        """Every instruction once, in order, through all loops."""
        return tuple(instructions(self.items))


def instructions(items: Items) -> Iterator[Instruction]:
    """Every instruction once, in order, through all loops."""
    for item in items:
        if isinstance(item, Instruction):
            yield item
        else:
            yield from instructions(item.items)


def carries(items: Items) -> Iterator[LoopCarry]:
    """What loops carry, at any depth."""
    for item in items:
        if isinstance(item, Repeat):
            yield from item.carries
            yield from carries(item.items)


def rewritten(items: Items, each: Callable[[Instruction], Iterable[Instruction | Repeat]]) -> Items:
    """Items with every instruction, at any depth, replaced by what `each` makes of it."""
    made: list[Instruction | Repeat] = []
    for item in items:
        if isinstance(item, Repeat):
            made.append(replace(item, items=rewritten(item.items, each)))
        else:
            made += each(item)
    return tuple(made)


def add_value(values: list[Value], like: Value, **changes: Any) -> int:
    """Appends a value like another one, in a new storage unless the changes say which; its number."""
    number = len(values)
    values.append(like._replace(**{"id": number, "storage": number, **changes}))
    return number


class LoopSpan(NamedTuple):
    """A loop over the places from `start` to `end` of a line; `depth` loops are around it."""

    loop: Repeat
    start: int
    end: int
    depth: int


def line_of(lowered: Lowered) -> tuple[list[Instruction | None], list[LoopSpan]]:
    """The places that lifetimes are counted along, and the loops over them.

    Place n is the n-th instruction in order, every loop once; a loop takes a place, None, before and one after its own.
    """
    places: list[Instruction | None] = []
    loops: list[LoopSpan] = []

    def walk(items: Items, depth: int) -> None:
        for item in items:
            if isinstance(item, Instruction):
                places.append(item)
                continue
            start = len(places)
            places.append(None)
            walk(item.items, depth + 1)
            loops.append(LoopSpan(item, start, len(places), depth))
            places.append(None)

    walk(lowered.items, 0)
    return places, loops
