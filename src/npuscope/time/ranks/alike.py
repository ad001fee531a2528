"""A change that is made to one rank's job, made to another's: they run one source, but not always the same work."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from npuscope.time.chip.job import Floats, Job
from npuscope.time.chip.prepare import Prepared

EDGES = ("producers", "first_out", "out")
PER_CLASS = ("run", "draws")


def changed_alike(other: Prepared, before: Prepared, after: Job) -> Job:
    """The other rank's job, changed as `after` is from `before`. Times change by the share by which those of the same
    kernel do. What is told of each task changes where both ranks have the same tasks, and edges where they have the
    same edges, else it stays."""
    was, its = before.job, other.job
    fields: dict[str, Any] = {}
    rows = _rows(other, before)
    for name in PER_CLASS:
        then, now = getattr(was, name), getattr(after, name)
        if now is not then and now.shape == then.shape:
            fields[name] = _by_share(getattr(its, name), then, now, rows)
    same_tasks = _kernels(other) == _kernels(before)
    same_edges = same_tasks and all(np.array_equal(getattr(its, name), getattr(was, name)) for name in EDGES)
    for name in Job._fields:
        then, now, own = getattr(was, name), getattr(after, name), getattr(its, name)
        if now is then or name in (*PER_CLASS, "stops"):
            continue
        if name in EDGES:
            alike = same_edges
        else:
            alike = not isinstance(then, np.ndarray) or (same_tasks and np.array_equal(own, then))
        if alike:
            fields[name] = now
        elif same_tasks and then.dtype.kind == "f" and own.shape == then.shape == now.shape:
            fields[name] = _share(own, then, now)
    return its._replace(**fields)


def _kernels(prepared: Prepared) -> list[str]:
    return [task.kernel for task in prepared.program.recording.tasks]


def _classes(prepared: Prepared) -> dict[str, list[int]]:
    """The classes of blocks of each kernel, in the order in which they are first submitted."""
    found: dict[str, list[int]] = defaultdict(list)
    kernels, job = _kernels(prepared), prepared.job
    classes, first = np.unique(job.block_class, return_index=True)
    for block, of in sorted(zip(first.tolist(), classes.tolist(), strict=True)):
        found[kernels[job.task_of[block]]].append(of)
    return found


def _rows(other: Prepared, before: Prepared) -> list[tuple[int, list[int]]]:
    """Of each class of the other rank the classes of the first that it goes by."""
    known, found = _classes(before), []
    for kernel, classes in _classes(other).items():
        theirs = known.get(kernel, [])
        for n, of in enumerate(classes):
            found.append((of, [theirs[n]] if len(theirs) == len(classes) else theirs))
    return found


def _by_share(its: Floats, then: Floats, now: Floats, rows: list[tuple[int, list[int]]]) -> Floats:
    found = its.copy()
    for of, theirs in rows:
        if theirs and its.shape[1:] == then.shape[1:]:
            found[of] = np.mean([_share(its[of], then[one], now[one]) for one in theirs], axis=0)
    return found


def _share(its: Floats, then: Floats, now: Floats) -> Floats:
    """Exactly what it is changed to where it was the same."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(its == then, now, np.where(then > 0, its * (now / then), now))
