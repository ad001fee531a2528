"""Who made each operand of a body: its ops as steps, with references resolved to the steps that they mean.

A step is an op as it is stored: once per segment of equal turns. What a loop carries was made by another step in its
first turn than in later ones, so an operand may have several makers. A turn that ran no op is not stored: "one turn
ago" is the stored turn before, "two turns or more" may be any earlier one, of the same segment one at least two before.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from npuscope.tile.record.model import Body, Op, Ref, TileType
from npuscope.tile.record.walk import Around, walk

Position = tuple[int, ...]  # index and segment of each loop around, outermost first; of an op its own index last


@dataclass(frozen=True, slots=True)
class Operand:
    """`now`: the step that makes it in this turn, or `again` the one that made it in an earlier turn of this segment;
    `before`: those of earlier segments, the nearest first. All empty for numbers.
    """

    ref: Ref | None
    now: int | None = None
    again: int | None = None
    before: tuple[int, ...] = ()

    @property
    def makers(self) -> tuple[int, ...]:
        """Every step that may have made it, the earliest first."""
        last = self.now if self.now is not None else self.again
        return (*sorted(self.before), *(() if last is None else (last,)))


@dataclass(frozen=True, eq=False, slots=True)
class Step:
    """A stored op and the loops around it, outermost first; `times`: how often it runs in a block."""

    number: int  # its place in the order of a BlockGroup's offsets
    op: Op
    around: tuple[Around, ...]
    operands: tuple[Operand, ...]
    times: int

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(loop.count for loop in self.around)

    @property
    def loops(self) -> Position:
        """Which loops are around it, whatever segment of each: by their indices."""
        return tuple(loop.index for loop in self.around)

    @property
    def loads(self) -> bool:
        """Whether it reads one box of GM into a tile."""
        return self.op.plane == "load" and len(self.op.accesses) == 1

    @property
    def stores(self) -> bool:
        """Whether it writes (or adds) a tile to one box of GM."""
        return self.op.plane == "store" and len(self.op.accesses) == 1

    @property
    def result(self) -> TileType:
        """The tile that it makes; to be asked of steps that make one."""
        assert self.op.result is not None
        return self.op.result


def steps_of(body: Body) -> tuple[Step, ...]:
    """The steps of a body, in the order of a BlockGroup's offsets."""
    resolver = _Resolver(body)
    return tuple(
        Step(
            number,
            op,
            around,
            tuple([resolver.operand(one, around) for one in op.operands]),
            prod([loop.count for loop in around]),
        )
        for number, (op, _, around) in enumerate(walk(body))
    )


class _Resolver:
    def __init__(self, body: Body) -> None:
        self.makers: dict[Position, int] = {}  # place of an op that makes a tile -> its step
        self.segments: dict[Position, int] = {}  # place of a loop -> how many it has
        for number, (op, index, around) in enumerate(walk(body)):
            place: Position = ()
            for loop in around:
                self.segments[*place, loop.index] = len(loop.loop.segments)
                place = (*place, loop.index, loop.segment)
            if op.result is not None and number >= len(body.prologue):
                self.makers[*place, index] = number

    def operand(self, given: object, around: tuple[Around, ...]) -> Operand:
        if not isinstance(given, Ref):
            return Operand(None)
        if given.up < 0:
            return Operand(given, now=given.path[0])
        outer = around[: max(len(around) - given.up, 0)]
        place = tuple([part for loop in outer for part in (loop.index, loop.segment)])
        if not given.back or not outer:
            return Operand(given, now=self._at(place, given.path))
        loop = outer[-1]
        again = self._at(place, given.path) if loop.count > given.back else None
        first = max(loop.segment - 1, 0) if given.back == 1 else 0
        return Operand(given, again=again, before=self._before(place[:-1], loop, given, first))

    def _before(self, place: Position, loop: Around, ref: Ref, first: int) -> tuple[int, ...]:
        """Earlier segments that have a maker; last those too near, unless turns that ran nothing lie between."""
        near: list[int] = []
        far: list[int] = []
        ago = 0
        for segment in range(loop.segment - 1, first - 1, -1):
            ago += loop.loop.segments[segment].count
            made = self._at((*place, segment), ref.path)
            if made is not None:
                (far if ago >= ref.back else near).append(made)
        return (*far, *near)

    def _at(self, place: Position, path: tuple[int, ...]) -> int | None:
        """The step at a path; a loop on the way stands for its last turn that has such a step."""
        if len(path) == 1:
            return self.makers.get((*place, *path))
        inner = (*place, path[0])
        found = (self._at((*inner, n), path[1:]) for n in reversed(range(self.segments.get(inner, 0))))
        return next((number for number in found if number is not None), None)
