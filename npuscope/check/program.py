"""The subject of every check: a recording, its graph, the chip, and what several rules need of them, computed once.

Rules must not grow with the number of tasks: they look at each `Launch` (tasks of equal work) once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from npuscope.check.races.classes import Classes
from npuscope.check.races.conflicts import Conflicts, conflicts
from npuscope.check.races.order import Order, order
from npuscope.check.shared.dataflow import Flow, flow_of
from npuscope.check.traffic import Traffic, traffic_of
from npuscope.device.chip import Device
from npuscope.lower.passes import Options
from npuscope.tile.graph.aliases import Placement
from npuscope.tile.graph.cells import Region
from npuscope.tile.graph.edges import Graph
from npuscope.tile.graph.exact import regions_by_buffer
from npuscope.tile.graph.task_graph import task_graph
from npuscope.tile.record.model import Core, Recording, Site, Task

if TYPE_CHECKING:
    from npuscope.check.memory import Kernel


@dataclass(frozen=True)
class Launch:
    """Tasks that do the same: one kernel at one place in the source, with the same bodies in as many blocks each."""

    kernel: str
    site: int
    core: Core
    blocks: int
    bodies: tuple[tuple[int, int], ...]  # body, how many blocks of a task have it
    tasks: tuple[int, ...]  # ids, in order of submission


@dataclass(frozen=True, eq=False)
class Program:
    """One recorded program on one chip.

    `golden`: the function its results are held against, if the run had one. `lowering`: settings of the compiler.
    """

    recording: Recording
    device: Device
    golden: Callable[..., object] | None = None
    lowering: Options = field(default_factory=Options)

    @cached_property
    def graph(self) -> Graph:
        return task_graph(self.recording)

    @cached_property
    def order(self) -> Order:
        """Who waits for whom, through any number of edges."""
        return order(self.recording, self.graph)

    @cached_property
    def conflicts(self) -> Conflicts:
        """Which earlier tasks each task shares an element with that one of the two writes."""
        return conflicts(self.regions, self.order.before, self.classes)

    @cached_property
    def classes(self) -> Classes:
        """Elements that the same regions touched, together; remembers what it was asked."""
        return Classes()

    @cached_property
    def regions(self) -> dict[int, list[Region]]:
        """What tasks touched of every buffer that somebody wrote, in order of submission."""
        return regions_by_buffer(self.recording)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """In order of their first task."""
        together: dict[tuple[str, int, Core, int, tuple[tuple[int, int], ...]], list[int]] = defaultdict(list)
        for task in self.recording.tasks:
            bodies = tuple((group.body, len(group.blocks)) for group in task.groups)
            together[task.kernel, task.site, task.core, task.blocks, bodies].append(task.id)
        return tuple(Launch(*key, tuple(tasks)) for key, tasks in together.items())

    @cached_property
    def flows(self) -> tuple[Flow, ...]:
        """The bodies as networks of steps."""
        return tuple(flow_of(body, self.recording.sites) for body in self.recording.bodies)

    @cached_property
    def placement(self) -> Placement:
        return Placement(self.recording)

    @cached_property
    def touching(self) -> dict[int, tuple[int, ...]]:
        """Per buffer (parts count as what they were assembled into) the tasks with an argument in it, in order."""
        found: dict[int, dict[int, None]] = defaultdict(dict)
        for task in self.recording.tasks:
            for argument in task.arguments:
                found[self.placement.root(argument.buffer)][task.id] = None
        return {buffer: tuple(tasks) for buffer, tasks in found.items()}

    @cached_property
    def kernels(self) -> tuple[Kernel, ...]:
        """Every body of every kernel, lowered and planned."""
        from npuscope.check.memory import kernels  # which reads programs

        return kernels(self, self.lowering)

    @cached_property
    def traffic(self) -> Traffic:
        """What tasks move between GM and the chip."""
        return traffic_of(self.recording, self.launches)

    def site(self, number: int) -> Site:
        return self.recording.sites[number]

    def first_task(self, launch: Launch) -> Task:
        return self.recording.tasks[launch.tasks[0]]
