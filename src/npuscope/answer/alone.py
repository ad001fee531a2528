"""Users' programs, each in a process of its own that it may ruin: on this machine or on a Ray cluster.

with alone("processes", jobs=4) as run:
    for one in run(function, pieces):  # in the order of the pieces: a value, or Failed(kind, told)

Where forking is not safe, as on macOS, each piece starts a new interpreter.
"""

from __future__ import annotations

import math
import os
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol, TypeVar

from npuscope.answer.job_limits import Failed, Limits
from npuscope.answer.job_process import Place
from npuscope.answer.pool import Handle, Pool, shared_pool
from npuscope.base import engine as workers
from npuscope.base.errors import NpuscopeError

A = TypeVar("A")
B = TypeVar("B")
AHEAD = 16  # pieces per worker that are asked for before the first of them has ended: each carries its environment
PATIENT = Limits(math.inf, 1 << 60)  # whoever simulates a few programs of their own waits for them


class Runner(Protocol):
    """Runs pieces; one that npuscope refuses with what to mend is an error of the whole."""

    def __call__(self, work: Callable[[A], B], pieces: Sequence[A]) -> Iterator[B | Failed]: ...


@contextmanager
def alone(engine: str = "processes", jobs: int | None = None, limits: Limits = PATIENT) -> Iterator[Runner]:
    """Keeps the processes, or the cluster, for all that is run within."""
    workers.known(engine)
    jobs = jobs or os.cpu_count() or 1
    if engine != "processes":
        with workers.cluster(engine, jobs):
            yield partial(_on_cluster, engine, jobs, limits, Place.here())
    elif sys.platform == "win32":  # without fork: a program that ends its process ends the run
        yield partial(workers.run, engine=engine, jobs=jobs)
    else:
        with Pool(jobs) as pool:
            yield partial(_in_pool, pool, limits, Place.here())


def _in_pool(
    pool: Pool, limits: Limits, place: Place, work: Callable[[A], B], pieces: Sequence[A]
) -> Iterator[B | Failed]:
    asked: deque[tuple[A, Handle[B]]] = deque()

    def ask(piece: A) -> Handle[B]:
        return pool.ask(work, piece, limits, place)

    def first() -> B | Failed:
        piece, handle = asked.popleft()
        answer = handle.result()
        if isinstance(answer, Failed) and answer.kind == "lost":  # with another one that ended the server
            answer = ask(piece).result()
        return _value(answer)

    for piece in pieces:
        asked.append((piece, ask(piece)))
        if len(asked) > AHEAD * pool.workers:
            yield first()
    while asked:
        yield first()


def _on_cluster(
    engine: str, jobs: int, limits: Limits, place: Place, work: Callable[[A], B], pieces: Sequence[A]
) -> Iterator[B | Failed]:
    for answer in workers.run(partial(_elsewhere, limits, place, work), pieces, engine, jobs):
        yield _value(answer)


def _value(answer: B | Failed) -> B | Failed:
    if isinstance(answer, Failed) and answer.kind == "refused":
        raise NpuscopeError(answer.told)
    return answer


def _elsewhere(limits: Limits, place: Place, work: Callable[[A], B], piece: A) -> B | Failed:
    return shared_pool(1).ask(work, piece, limits, place).result()  # of the cluster's worker, as long as that lives
