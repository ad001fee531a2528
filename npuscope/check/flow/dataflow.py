"""A task's body as a network of steps: who made each operand, who uses each result, in which loops, how often.

A `Step` is an op as it is stored: once per segment of equal iterations. What a loop carries was made by another step
in the first iteration than in later ones, so an operand may have several makers.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from npuscope.check.once import once
from npuscope.lower.program import Program
from npuscope.lower.source import called, statement_at
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.spec import OpSpec, Role
from npuscope.tile.record.model import Body, Loop, Op, Ref, Site, TileType

Through = tuple[Role, ...]  # ops of these roles are seen through
SAME: Through = (Role.SAME_ELEMENTS,)


@dataclass(frozen=True, eq=False)
class Step:
    """A stored op, the loops around it (outermost first) and how often it runs in a block."""

    number: int  # its place in Flow.steps
    op: Op
    loops: tuple[Loop, ...]
    segments: tuple[int, ...]  # of those loops, in which it stands
    times: int
    operands: tuple[tuple[int, ...], ...]  # per operand the steps that may have made it; none for scalars
    zero: bool = False  # makes a tile of zeros, as its source says

    def is_a(self, *roles: Role) -> bool:
        return self.op.spec.is_a(*roles)

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


@dataclass(frozen=True, eq=False)
class Flow:
    """The steps of one body, in the order of a BlockGroup's offsets."""

    steps: tuple[Step, ...]

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """Per step the steps that use its result, each once."""
        found: list[dict[int, None]] = [{} for _ in self.steps]
        for step in self.steps:
            for makers in step.operands:
                for maker in makers:
                    found[maker][step.number] = None
        return tuple(tuple(users) for users in found)

    def makers(self, step: Step, operand: int, through: Through = ()) -> tuple[Step, ...]:
        """What may have made an operand; ops of the roles in `through` are seen through to what they were made of."""

        def behind(maker: Step) -> tuple[int, ...]:
            return maker.operands[0] if maker.operands and maker.is_a(*through) else ()

        return self._reached(step.operands[operand], behind)

    def uses(self, step: Step, through: Through = ()) -> tuple[Step, ...]:
        """Who uses a result; ops of the roles in `through` are seen through to who uses what they made of it."""

        def beyond(user: Step) -> tuple[int, ...]:
            return self.users[user.number] if user.op.plane != "store" and user.is_a(*through) else ()

        return self._reached(self.users[step.number], beyond)

    def _reached(self, start: Iterable[int], on: Callable[[Step], tuple[int, ...]]) -> tuple[Step, ...]:
        ends: list[Step] = []
        seen = set(start)
        open_ = [*start]
        for number in open_:  # grows as it goes
            step = self.steps[number]
            further = on(step)
            if not further:
                ends.append(step)
            open_ += [n for n in further if n not in seen]
            seen.update(further)
        return tuple(ends)


def tile_bytes(tile: TileType) -> int:
    """Bytes of a whole tile, whatever part of it is valid."""
    return prod(tile.shape) * BY_NAME[tile.dtype].bytes


def iterations(loop: Loop) -> int:
    return sum(segment.count for segment in loop.segments)


@once
def flows_of(program: Program) -> tuple[Flow, ...]:
    """The bodies of a program as networks of steps."""
    return tuple(flow_of(body, program.recording.sites) for body in program.recording.bodies)


def flow_of(body: Body, sites: Sequence[Site]) -> Flow:
    """The steps of a body with their operands resolved."""
    return Flow(tuple(_Reader(body, sites).steps))


@lru_cache(maxsize=4096)
def _fills_zeros(site: Site, fill: OpSpec) -> bool:
    """Whether the `pl.full` on a line is given a zero. The source is asked: a computed value may be zero by chance."""
    statement = statement_at(site)
    values = [
        next((keyword.value for keyword in node.keywords if keyword.arg == "value"), (*node.args, None, None, None)[2])
        for node in (ast.walk(statement) if statement is not None else ())
        if isinstance(node, ast.Call)
        and called(node) in fill.names
        and node.lineno <= site.line <= (node.end_lineno or node.lineno)
    ]
    return bool(values) and all(isinstance(value, ast.Constant) and value.value == 0 for value in values)


@dataclass(frozen=True)
class _Loop:
    """A loop's items by segment, as numbers of steps."""

    counts: tuple[int, ...]
    segments: tuple[Sequence[int | _Loop], ...]


_Frames = tuple[tuple[_Loop, int], ...]  # the loops around a place and the segment we are in, outermost first


class _Reader:
    def __init__(self, body: Body, sites: Sequence[Site]) -> None:
        self.sites = sites
        self.steps: list[Step] = []
        self._found: list[tuple[Op, tuple[Loop, ...], tuple[int, ...], int]]
        self._found = [(op, (), (), 1) for op in body.prologue]
        self._root = self._numbered(body.items, (), (), 1)
        for op in body.prologue:
            self._add(op)
        self._resolved(self._root, ())

    def _numbered(
        self, items: Sequence[Op | Loop], loops: tuple[Loop, ...], segments: tuple[int, ...], times: int
    ) -> Sequence[int | _Loop]:
        found: list[int | _Loop] = []
        for item in items:
            if isinstance(item, Op):
                found.append(len(self._found))
                self._found.append((item, loops, segments, times))
            else:
                around = (*loops, item)
                inner = tuple(
                    self._numbered(segment.items, around, (*segments, place), times * segment.count)
                    for place, segment in enumerate(item.segments)
                )
                found.append(_Loop(tuple(segment.count for segment in item.segments), inner))
        return found

    def _resolved(self, items: Sequence[int | _Loop], frames: _Frames) -> None:
        for item in items:
            if isinstance(item, int):
                self._add(self._found[item][0], frames)
            else:
                for place, segment in enumerate(item.segments):
                    self._resolved(segment, (*frames, (item, place)))

    def _add(self, op: Op, frames: _Frames = ()) -> None:
        number = len(self.steps)
        operands = tuple(self._makers(x, frames) if isinstance(x, Ref) else () for x in op.operands)
        zero = op.spec.is_a(Role.FILL) and _fills_zeros(self.sites[op.site], op.spec)
        self.steps.append(Step(number, *self._found[number], operands, zero))

    def _makers(self, ref: Ref, frames: _Frames) -> tuple[int, ...]:
        if ref.up < 0:
            return ref.path
        around = frames[: len(frames) - ref.up]
        if not around:
            lists: list[Sequence[int | _Loop]] = [self._root]
        else:
            loop, here = around[-1]
            first = here if ref.back == 0 else here - 1 if ref.back == 1 else 0
            last = here - 1 if ref.back and loop.counts[here] == 1 else here
            lists = [loop.segments[n] for n in range(max(first, 0), last + 1)]
        made = (_at(items, ref.path) for items in lists)
        return tuple(number for number in made if number is not None)


def _at(items: Sequence[int | _Loop], path: tuple[int, ...]) -> int | None:
    """The step at a path; a loop on the way stands for its last iteration that has such a step."""
    item = items[path[0]] if path[0] < len(items) else None
    if len(path) == 1:
        return item if isinstance(item, int) else None
    for segment in reversed(item.segments) if isinstance(item, _Loop) else ():
        found = _at(segment, path[1:])
        if found is not None:
            return found
    return None
