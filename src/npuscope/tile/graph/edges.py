"""Edges of the runtime's graph, each with its reason."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

from npuscope.tile.graph.boxes import Box
from npuscope.tile.graph.directions import Direction

Origin = Literal["creator", "raw", "waw", "explicit"]
ORIGINS: tuple[Origin, ...] = ("creator", "raw", "waw", "explicit")


class Edge(NamedTuple):
    """`dst` waits for `src`, for this reason. `src` < 0 is an allocation: number -1 - src of `Graph.allocations`.

    A tensormap edge (raw, waw) has both boxes and `covered`: the consumer's box holds the producer's whole. A creator
    edge has the consumer's box only, an explicit one neither.
    """

    src: int
    dst: int
    origin: Origin
    argument: int = -1  # of dst
    src_box: Box | None = None
    dst_box: Box | None = None
    covered: bool = False

    @property
    def buffer(self) -> int | None:
        return None if self.dst_box is None else self.dst_box.buffer


@dataclass(frozen=True)
class Allocation:
    """One `alloc_tensors` of the orchestration: a task without a kernel that is done when it is submitted.

    `before_task` is the first task submitted after it.
    """

    buffers: tuple[int, ...]
    before_task: int


@dataclass(frozen=True)
class Graph:
    """Why each task waits, in the order of submission: one edge per argument and entry found, so a pair may repeat.

    `directions` and `footprints` have one entry per argument of each task, after aliases are resolved.
    """

    edges: tuple[Edge, ...]
    allocations: tuple[Allocation, ...]
    directions: tuple[tuple[Direction, ...], ...]
    footprints: tuple[tuple[Box, ...], ...]

    @cached_property
    def pairs(self) -> dict[tuple[int, int], tuple[Origin, ...]]:
        """(src, dst) with every origin of the edge between them."""
        found: dict[tuple[int, int], dict[Origin, None]] = {}
        for edge in self.edges:
            found.setdefault((edge.src, edge.dst), {})[edge.origin] = None
        return {pair: tuple(origins) for pair, origins in found.items()}

    def counts(self) -> dict[Origin, int]:
        """Pairs of tasks per origin; a pair with two origins counts under both."""
        found = Counter(origin for origins in self.pairs.values() for origin in origins)
        return {origin: found[origin] for origin in ORIGINS}
