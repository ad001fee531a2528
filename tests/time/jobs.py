"""Random jobs for the chip: what hypothesis draws, as the arrays that the engine runs."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from npuscope.time.chip.job import AIC, AIV, MIX, NONE, SLOW, Job, Machine, Rings, Stops, rings_with


def machine(clusters: int = 3, limit: float = 50.0) -> Machine:
    return Machine(
        clusters=clusters,
        threads=3,
        limit=limit,
        poll=100.0,
        dispatch=300.0,
        dispatch_turn=70.0,
        complete=310.0,
        complete_turn=45.0,
        resolve=50.0,
        visible=140.0,
        fin=600.0,
        pickup=290.0,
        pickup_first=2450.0,
        switch=280.0,
        stage=460.0,
        dummy=330.0,
        loop=50.0,
        release=20.0,
    )


def hosted(chip: Machine, resolver: int = 1) -> Machine:
    """The same chip under a runtime whose graph the host builds."""
    return chip._replace(hosted=1, resolver=resolver, attach=900.0, scan=40.0, settle=90.0, expand=70.0)


def built_by_host(random: Random, made: Job, graphs: int = 0) -> Job:
    """A job as the host submits it: nobody is early, nobody waits for what a task writes; some tasks are nodes of
    recorded graphs, which are expanded."""
    tasks = len(made.shape)
    kinds = np.array([random.randrange(-1, graphs) for _ in range(tasks)], np.int64)
    none = np.zeros(tasks, np.int64)
    return made._replace(early=none, waits_host=none - 1, submit=np.zeros(tasks), graph=kinds if graphs else kinds[:0])


def rings(random: Random, made: Job, slots: int, heap: int) -> Rings:
    """Rings for a job: some tensors before its tasks, scopes that close now and then, users among later tasks."""
    tasks = len(made.shape)
    ends = sorted({tasks, *(random.randrange(1, tasks + 1) for _ in range(tasks // 3))})
    entry: list[tuple[int, int, int]] = []
    first, uses = [0], []
    for task in range(tasks):
        closes = next(end for end in ends if end > task)
        entry += [(random.randrange(2), random.randrange(1, 100), closes) for _ in range(random.choice((0, 0, 1, 2)))]
        entry.append((random.randrange(2), 0, closes))
        first.append(len(entry))
        uses.append({random.randrange(len(entry)) for _ in range(random.choice((0, 1, 2)))} - {len(entry) - 1})
    return rings_with(first, np.array(entry, np.int64).T, uses, np.array([[slots] * 2, [heap] * 2], np.int64))


def job(random: Random, tasks: int, classes: int = 4) -> Job:
    """A graph whose edges go forward; some tasks early, some launches together, some that do nothing.

    Blocks take up to 30 µs, in some jobs less than the scheduler needs to see them end. What takes nothing from HBM is
    not slowed down by it.
    """
    shape = [random.choice((MIX, AIC, AIC, AIV, AIV, NONE)) for _ in range(tasks)]
    blocks = [0 if kind == NONE else random.choice((1, 1, 1, 2, 5, 9)) for kind in shape]
    edges = sorted(
        {(random.randrange(dst), dst) for dst in range(1, tasks) for _ in range(random.choice((0, 1, 1, 2)))}
    )
    source, target = np.array([e[0] for e in edges], np.int64), np.array([e[1] for e in edges], np.int64)
    scale = random.choice((1, 1, 1, 0.02, 0.0005))
    base = np.array([random.uniform(500, 30_000) for _ in range(classes)]) * scale
    bytes_ = np.array([random.choice((0.0, random.uniform(1e4, 1e6))) for _ in range(classes)]) * scale
    bound = np.array([random.random() for _ in range(classes)]) * (bytes_ > 0)
    run = base[:, None] * (1 + bound[:, None] * (SLOW[None, :] - 1))
    counts = np.array(blocks, np.int64)
    host = [random.randrange(n) if n and random.random() < 0.05 else -1 for n in range(tasks)]
    return Job(
        shape=np.array(shape, np.int64),
        blocks=counts,
        first_block=np.concatenate([[0], np.cumsum(counts)[:-1]]).astype(np.int64),
        block_class=np.array([random.randrange(classes) for _ in range(int(np.sum(counts)))], np.int64),
        task_of=np.repeat(np.arange(tasks, dtype=np.int64), counts),
        producers=np.bincount(target, minlength=tasks).astype(np.int64),
        first_out=np.searchsorted(source, np.arange(tasks + 1)).astype(np.int64),
        out=target,
        submit=np.array([random.uniform(200, 2000) for _ in range(tasks)]),
        early=np.array([int(random.random() < 0.3) for _ in range(tasks)], np.int64),
        together=np.array([int(kind != NONE and random.random() < 0.1) for kind in shape], np.int64),
        waits_host=np.array(host, np.int64),
        run=run,
        draws=bytes_[:, None] / run,
    )


def equal(a: Job, b: Job) -> bool:
    fields = [name for name in Job._fields if name not in ("rings", "stops")]
    pairs: list[tuple[Any, Any]] = [(getattr(a, name), getattr(b, name)) for name in fields]
    parts = [*zip(a.rings, b.rings, strict=True), *zip(a.stops, b.stops, strict=True)]
    return all(np.array_equal(x, y) for x, y in [*pairs, *parts])


def stopping(random: Random, made: Job, wait: float) -> Job:
    """The job with stops in some of its blocks, of which some end `wait` later or so."""
    counts = np.array([random.choice((0, 0, 1, 2, 5)) for _ in made.block_class], np.int64)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    edges = [np.sort([[random.random()] * len(SLOW) for _ in range(n)], axis=0) for n in counts if n]
    share = np.concatenate([np.zeros((0, len(SLOW))), *edges])
    release = np.array([random.choice((0.0, random.uniform(0, wait))) for _ in share])
    return made._replace(stops=Stops(first, share, release))


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
