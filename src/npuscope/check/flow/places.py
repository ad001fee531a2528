"""The steps of all launches of a program: what a rule over bodies goes through."""

from __future__ import annotations

from dataclasses import dataclass, replace

from npuscope.check.findings import Finding, Waste
from npuscope.check.flow.dataflow import Flow, flows_of
from npuscope.check.once import once
from npuscope.lower.program import Launch, Program
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile.record.model import Access, Argument, Buffer, Site, TileType
from npuscope.tile.record.walk import Step


@dataclass(frozen=True, eq=False)
class Place:
    """A step of a launch and how often it ran, over all blocks of all its tasks."""

    program: Program
    launch: Launch
    body: int
    flow: Flow
    step: Step
    runs: int

    def other(self, step: Step) -> Place:
        """Another step of the same body."""
        runs = self.runs // self.step.times * step.times
        return Place(self.program, self.launch, self.body, self.flow, step, runs)

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
        return access.elements * BY_NAME[self.buffer(access).dtype].bytes


@once
def places(program: Program) -> tuple[Place, ...]:
    """Every step of every launch, in the order of the launches' first tasks."""
    flows = flows_of(program)
    return tuple(
        Place(program, launch, body, flows[body], step, step.times * blocks * len(launch.tasks))
        for launch in program.launches
        for body, blocks in launch.bodies
        for step in flows[body].steps
    )


def as_one(findings: list[Finding]) -> Finding:
    """Findings of one cause, told at the costliest line; the other lines belong to it."""
    told = max(findings, key=lambda f: (f.waste.bytes, f.waste.flops))
    waste = sum((one.waste for one in findings), Waste())
    lines = dict.fromkeys(
        place for one in findings for place in ((one.file, one.line), *one.also) if place != (told.file, told.line)
    )
    return replace(told, waste=waste, count=sum(one.count for one in findings), also=tuple(lines))


def shown(tile: TileType) -> str:
    return f"[{', '.join(map(str, tile.shape))}] {tile.dtype}"
