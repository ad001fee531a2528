"""What is said of a race."""

from __future__ import annotations

from dataclasses import dataclass

from npuscope.check.wording.region_text import named, region_text
from npuscope.lower.program import Program
from npuscope.tile.graph.exact import Hazard, Region
from npuscope.tile.record.model import Task


@dataclass(frozen=True)
class Side:
    """One of the two accesses: whose, the op's place, the place of the region it is in, what it touches."""

    task: int  # -1: the orchestration's own read
    kernel: str
    file: str
    line: int
    launch: tuple[str, int]  # file, line of the `with` or the call
    region: str  # q_proj[0:16, 512:1024]
    block: int | None = None  # of a launch whose own blocks race

    def as_dict(self) -> dict[str, object]:
        told: dict[str, object] = {"task": self.task, "kernel": self.kernel, "launch": list(self.launch)}
        return told if self.block is None else {**told, "block": self.block}


def side_of(program: Program, task: Task, site: int, region: Region, block: int | None = None) -> Side:
    """A task's access, as it is shown."""
    place, launch = program.site(site), program.site(task.site)
    text = text_of(program, region)
    return Side(task.id, task.kernel, place.file, place.line, (launch.file, launch.line), text, block)


def text_of(program: Program, region: Region) -> str:
    return region_text(named(program, region.buffer), region.shape, region.strides, region.offsets.tolist())


@dataclass(frozen=True)
class ChangedOutput:
    """An output that another legal order leaves different: how many elements, by how much at most, where first."""

    output: str
    elements: int
    of: int
    largest: float | None  # None: somewhere there is no number (NaN) in one of them
    first: tuple[int, ...]

    def as_dict(self) -> dict[str, object]:
        return {
            "output": self.output,
            "elements": self.elements,
            "of": self.of,
            "largest": self.largest,
            "first": list(self.first),
        }


@dataclass(frozen=True)
class Race:
    """Two accesses that conflict and that nothing orders; `count` pairs of tasks (or blocks) do so at these lines.

    `sides[0]` comes first in the program: it is what the later one must wait for. `changes` is what a replay showed:
    None if there was none, and then `unplayed` says why if one was asked for.
    """

    hazard: Hazard
    buffer: str
    sides: tuple[Side, Side]
    count: int
    why: str  # there is no order
    fix: str
    changes: tuple[ChangedOutput, ...] | None = None
    unplayed: str = ""

    def as_dict(self) -> dict[str, object]:
        """The JSON contract of a race."""
        told = {
            "lines": [[side.file, side.line] for side in self.sides],
            "regions": [side.region for side in self.sides],
            "hazard": self.hazard,
            "buffer": self.buffer,
            "tasks": [side.as_dict() for side in self.sides],
            "count": self.count,
            "why": self.why,
            "fix": self.fix,
        }
        if self.changes is not None:
            told["changes"] = [change.as_dict() for change in self.changes]
        return {**told, "unplayed": self.unplayed} if self.unplayed else told
