"""Small graphs of tasks for the chip: one kind of core, lengths and edges as a story needs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuscope.time.chip.job import AIC, SLOW, Job

Edges = Sequence[tuple[int, int]]


def graph(lengths: Sequence[float], edges: Edges = (), shape: int = AIC, blocks: int = 1, bytes: float = 0.0) -> Job:
    """Tasks of these lengths, of so many equal blocks; each takes `bytes` of HBM, and as long as these take."""
    kinds, tasks, found = sorted(set(lengths)), len(lengths), sorted(set(edges))
    source, target = (np.array([edge[n] for edge in found], np.int64) for n in range(2))
    run = np.array(kinds, float)[:, None] * (SLOW[None, :] if bytes else np.ones((1, len(SLOW))))
    none = np.zeros(tasks, np.int64)
    return Job(
        shape=np.full(tasks, shape, np.int64),
        blocks=np.full(tasks, blocks, np.int64),
        first_block=np.arange(tasks) * blocks,
        block_class=np.repeat([kinds.index(length) for length in lengths], blocks),
        task_of=np.repeat(np.arange(tasks), blocks),
        producers=np.bincount(target, minlength=tasks).astype(np.int64),
        first_out=np.searchsorted(source, np.arange(tasks + 1)).astype(np.int64),
        out=target,
        submit=np.full(tasks, 500.0),
        early=none,
        together=none.copy(),
        waits_host=none - 1,
        run=run,
        draws=bytes / run,
    )


def chain(tasks: int, length: float, **kind: float) -> Job:
    return graph([length] * tasks, [(n, n + 1) for n in range(tasks - 1)], **kind)  # type: ignore[arg-type]


def fork_and_join(tasks: int, length: float, **kind: float) -> Job:
    """One task, so many that wait for it, one that waits for all."""
    ways = range(1, tasks + 1)
    edges = [*((0, n) for n in ways), *((n, tasks + 1) for n in ways)]
    return graph([length] * (tasks + 2), edges, **kind)  # type: ignore[arg-type]
