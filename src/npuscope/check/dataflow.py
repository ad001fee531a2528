"""A task's body as a network of steps: who made each operand, who uses each result, which sums run through it.

`places` has the steps of all launches of a program: what a rule over bodies goes through.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from math import prod

from npuscope.base.frozen import dataclass
from npuscope.check.rule import Finding, Waste, once
from npuscope.lower.program import KernelLaunch, Program
from npuscope.lower.source import statement_at
from npuscope.ops.dtypes import BY_NAME
from npuscope.ops.spec import OpRole, OpSpec
from npuscope.tile.language.grammar import called
from npuscope.tile.record.model import Access, Argument, Body, Buffer, Site, TileType
from npuscope.tile.record.walk import Step, steps_of

Through = tuple[OpRole, ...]  # ops of these roles are seen through
SAME: Through = (OpRole.SAME_ELEMENTS,)


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

    def behind(self, start: Iterable[int]) -> list[int]:
        """These steps and all that went into them, each once."""
        found = list(start)
        known = set(found)
        for number in found:  # grows as it goes
            new = {maker for operand in self.steps[number].operands for maker in operand.makers} - known
            found += new
            known |= new
        return found

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
    return BY_NAME[tile.dtype].size(prod(tile.shape))


@once
def flows_of(program: Program) -> tuple[Flow, ...]:
    """The bodies of a program as networks of steps."""
    return tuple(flow_of(body, program.recording.sites) for body in program.recording.bodies)


def flow_of(body: Body, sites: Sequence[Site]) -> Flow:
    """The steps of a body with their operands resolved."""
    steps = steps_of(body)
    fills = (step for step in steps if step.op.spec.is_a(OpRole.FILL))
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


@dataclass(frozen=True, eq=False)
class StepPlace:
    """A step of a launch and how often it ran, over all blocks of all its tasks."""

    program: Program
    launch: KernelLaunch
    body: int
    flow: Flow
    step: Step
    runs: int

    def other(self, step: Step) -> StepPlace:
        """Another step of the same body."""
        runs = self.runs // self.step.times * step.times
        return StepPlace(self.program, self.launch, self.body, self.flow, step, runs)

    @property
    def kernel(self) -> str:
        return self.launch.kernel

    @property
    def site(self) -> Site:
        return self.program.site(self.step.op.site)

    def argument(self, access: Access) -> Argument:
        """The tensor that an access means, in the launch's first task."""
        return self.program.first_task(self.launch).arguments[access.argument]

    def buffer(self, access: Access) -> Buffer:
        return self.program.recording.buffers[self.argument(access).buffer]

    def bytes(self, access: Access) -> int:
        """Bytes of one access."""
        return BY_NAME[self.buffer(access).dtype].size(access.elements)


@once
def places(program: Program) -> tuple[StepPlace, ...]:
    """Every step of every launch, in the order of the launches' first tasks."""
    flows = flows_of(program)
    return tuple(
        StepPlace(program, launch, body, flows[body], step, step.times * blocks * len(launch.tasks))
        for launch in program.launches
        for body, blocks in launch.bodies
        for step in flows[body].steps
    )


def as_one(findings: list[Finding]) -> Finding:
    """Findings of one cause, told at the costliest line; the other lines belong to it."""
    worst = max(findings, key=lambda f: (f.waste.bytes, f.waste.flops))
    waste = sum((one.waste for one in findings), Waste())
    lines = dict.fromkeys(
        place for one in findings for place in ((one.file, one.line), *one.also) if place != (worst.file, worst.line)
    )
    return replace(worst, waste=waste, count=sum(one.count for one in findings), also=tuple(lines))


def shown(tile: TileType) -> str:
    return f"[{', '.join(map(str, tile.shape))}] {tile.dtype}"


def acc_of(flow: Flow, step: Step) -> int | None:
    """The operand that a step adds a product to: one that comes from the cube and that nothing else uses."""
    if step.op.spec.is_a(OpRole.SUM) and len(step.operands) == 2:
        for acc, product in ((0, 1), (1, 0)):
            makers = flow.makers(step, product, SAME)
            users = {user.number for maker in makers for user in flow.uses(maker, SAME)}
            if makers and all(maker.op.plane == "cube" for maker in makers) and users <= {step.number}:
                return acc
    return None


def sums(flow: Flow, add: Step, operand: int) -> bool:
    """Whether an operand of an add is a running sum of products: zeros, products, sums of those, and nothing in
    between. What a loop's sum begins with may be anything that was there before: it can be added once, at the end.
    """
    ends: list[Step] = []
    seen: set[int] = set()
    carried = False
    todo = [(add, operand)]
    for step, acc in todo:  # grows as it goes
        for maker in flow.makers(step, acc, SAME):
            if maker.number in seen:
                continue
            seen.add(maker.number)
            inner = acc_of(flow, maker)
            if inner is None:
                ends.append(maker)
            else:
                carried = carried or (bool(add.loops) and maker.loops == add.loops)
                todo.append((maker, inner))
    return bool(seen) and all(
        end.op.plane == "cube" or end.number in flow.zeros or (carried and len(end.around) < len(add.around))
        for end in ends
    )


def sum_in_gm(flow: Flow, add: Step, acc: int) -> tuple[Step, Step] | None:
    """The load and the store of a running sum that lives in GM: x += … of one box."""
    loads = flow.makers(add, acc, SAME)
    stores = flow.uses(add, SAME)
    if len(loads) != 1 or not loads[0].loads or len(stores) != 1 or not stores[0].stores:
        return None
    (read,), (written,) = loads[0].op.accesses, stores[0].op.accesses
    same = (read.argument, read.shape, read.strides) == (written.argument, written.shape, written.strides)
    return (loads[0], stores[0]) if same else None


def zero_of(flow: Flow, store: Step) -> Step | None:
    """The `pl.full` of zeros that a step writes to GM, if it writes those."""
    if not store.stores or store.op.accesses[0].mode != "write":
        return None
    makers = flow.makers(store, 0, (OpRole.KEEPS_ZEROS,))
    return makers[0] if makers and all(maker.number in flow.zeros for maker in makers) else None
