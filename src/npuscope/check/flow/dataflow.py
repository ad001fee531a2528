"""A task's body as a network of steps: who made each operand, who uses each result."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

from npuscope.check.once import once
from npuscope.lower.program import Program
from npuscope.lower.source import statement_at
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.spec import OpSpec, Role
from npuscope.tile.language.grammar import called
from npuscope.tile.record.model import Body, Site, TileType
from npuscope.tile.record.walk import Step, steps_of

Through = tuple[Role, ...]  # ops of these roles are seen through
SAME: Through = (Role.SAME_ELEMENTS,)


@dataclass(frozen=True, eq=False)
class Flow:
    """The steps of one body, in the order of a BlockGroup's offsets; `zeros`: those filled with zeros in the source."""

    steps: tuple[Step, ...]
    zeros: frozenset[int]

    @cached_property
    def users(self) -> tuple[tuple[int, ...], ...]:
        """Per step the steps that use its result, each once."""
        found: list[dict[int, None]] = [{} for _ in self.steps]
        for step in self.steps:
            for operand in step.operands:
                for maker in operand.makers:
                    found[maker][step.number] = None
        return tuple(tuple(users) for users in found)

    def makers(self, step: Step, operand: int, through: Through = ()) -> tuple[Step, ...]:
        """What may have made an operand; ops of the roles in `through` are seen through to what they were made of."""

        def behind(maker: Step) -> tuple[int, ...]:
            return maker.operands[0].makers if maker.operands and maker.op.spec.is_a(*through) else ()

        return self._reached(step.operands[operand].makers, behind)

    def uses(self, step: Step, through: Through = ()) -> tuple[Step, ...]:
        """Who uses a result; ops of the roles in `through` are seen through to who uses what they made of it."""

        def beyond(user: Step) -> tuple[int, ...]:
            return self.users[user.number] if user.op.plane != "store" and user.op.spec.is_a(*through) else ()

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


@once
def flows_of(program: Program) -> tuple[Flow, ...]:
    """The bodies of a program as networks of steps."""
    return tuple(flow_of(body, program.recording.sites) for body in program.recording.bodies)


def flow_of(body: Body, sites: Sequence[Site]) -> Flow:
    """The steps of a body with their operands resolved."""
    steps = steps_of(body)
    fills = (step for step in steps if step.op.spec.is_a(Role.FILL))
    return Flow(steps, frozenset(step.number for step in fills if _fills_zeros(sites[step.op.site], step.op.spec)))


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
