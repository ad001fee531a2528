"""The subject of every check: a recording, its graph, the chip, and what several rules need of them, computed once.

Rules must not grow with the number of tasks: they look at each `Launch` (tasks of equal work) once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from npuscope.device.chip import Device
from npuscope.lower.traffic import Traffic, traffic_of
from npuscope.tile.graph.edges import Graph
from npuscope.tile.graph.task_graph import task_graph
from npuscope.tile.record.model import Core, Recording, Site, Task


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
    """One recorded program on one chip."""

    recording: Recording
    device: Device

    @cached_property
    def graph(self) -> Graph:
        return task_graph(self.recording)

    @cached_property
    def launches(self) -> tuple[Launch, ...]:
        """In order of their first task."""
        together: dict[tuple[str, int, Core, int, tuple[tuple[int, int], ...]], list[int]] = defaultdict(list)
        for task in self.recording.tasks:
            bodies = tuple((group.body, len(group.blocks)) for group in task.groups)
            together[task.kernel, task.site, task.core, task.blocks, bodies].append(task.id)
        return tuple(Launch(*key, tuple(tasks)) for key, tasks in together.items())

    @cached_property
    def traffic(self) -> Traffic:
        return traffic_of(self.recording, self.launches)

    def site(self, number: int) -> Site:
        return self.recording.sites[number]

    def first_task(self, launch: Launch) -> Task:
        return self.recording.tasks[launch.tasks[0]]
