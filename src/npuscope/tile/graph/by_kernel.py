"""The graph with a node per kernel: which kernels wait for which, how often and why, in columns from first to last."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

from npuscope.tile.graph.edges import Graph
from npuscope.tile.record.model import Recording


@dataclass(frozen=True)
class KernelEdge:
    """Edges between the tasks of two kernels: how many, by origin. `implied`: a longer way leads there too."""

    src: str
    dst: str
    count: int
    origins: tuple[tuple[str, int], ...]
    implied: bool


@dataclass(frozen=True)
class KernelGraph:
    """`columns`: kernels by the longest way to them, what waits for nothing as late as it may; `back`: edges to
    earlier kernels."""

    columns: tuple[tuple[str, ...], ...]
    edges: tuple[KernelEdge, ...]
    back: tuple[KernelEdge, ...]


def kernel_graph(recording: Recording, graph: Graph) -> KernelGraph:
    """Folds tasks into their kernels; edges against the order of first tasks (the next layer's) are kept apart."""
    kernels = [task.kernel for task in recording.tasks]
    order = {name: n for n, name in enumerate(dict.fromkeys(kernels))}
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    totals: Counter[tuple[str, str]] = Counter()
    for (before_task, task), origins in graph.pairs.items():
        if before_task >= 0:
            pair = kernels[before_task], kernels[task]
            totals[pair] += 1
            counts[pair].update(origins)
    forward = sorted(
        (pair for pair in totals if order[pair[0]] < order[pair[1]]), key=lambda p: (order[p[1]], order[p[0]])
    )
    before: dict[str, list[str]] = defaultdict(list)
    for src, dst in forward:
        before[dst].append(src)
    depth: dict[str, int] = {}
    reach: dict[str, set[str]] = {}  # every kernel that a way leads from
    for name in order:
        depth[name] = 1 + max((depth[src] for src in before[name]), default=-1)
        reach[name] = set(before[name]).union(*(reach[src] for src in before[name]))
    for name in reversed(order):  # what waits for nothing stands beside the first that waits for it
        after = [depth[dst] for src, dst in forward if src == name]
        if after and not before[name]:
            depth[name] = min(after) - 1
    columns: list[list[str]] = [[] for _ in range(1 + max(depth.values(), default=-1))]
    for name in order:
        columns[depth[name]].append(name)

    def edge(pair: tuple[str, str], implied: bool) -> KernelEdge:
        src, dst = pair
        return KernelEdge(src, dst, totals[pair], tuple(sorted(counts[pair].items())), implied)

    edges = tuple(edge((s, d), any(s in reach[other] for other in before[d] if other != s)) for s, d in forward)
    back = tuple(edge(pair, False) for pair in totals if order[pair[0]] >= order[pair[1]])
    return KernelGraph(tuple(map(tuple, columns)), edges, back)
