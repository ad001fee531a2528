"""Many independent pieces of work: in processes of this machine, or on a Ray cluster. One function, same results.

The function and its pieces must pickle.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from npuscope.base.errors import NpuscopeError

A = TypeVar("A")
B = TypeVar("B")
ENGINES = ("processes", "ray")


class _Failure(NamedTuple):
    """What a user can mend, carried home as data: exceptions with keywords do not pickle everywhere."""

    kind: type[NpuscopeError]
    told: dict[str, Any]


def run(work: Callable[[A], B], pieces: Sequence[A], engine: str = "processes", jobs: int | None = None) -> Iterator[B]:
    """The result of each piece, as soon as it and those before it are done; raises the first piece's error."""
    early: dict[int, B | _Failure] = {}
    following = 0
    for number, result in _each(work, pieces, engine, jobs):
        early[number] = result
        while following in early:
            yield _value(early.pop(following))
            following += 1


def as_they_end(work: Callable[[A], B], pieces: Sequence[A], engine: str, jobs: int | None = None) -> Iterator[B]:
    """The result of each piece as soon as it is done, in no order."""
    for _, result in _each(work, pieces, engine, jobs):
        yield _value(result)


def _value(result: B | _Failure) -> B:
    if isinstance(result, _Failure):
        raise result.kind(**result.told)
    return result


def _each(
    work: Callable[[A], B], pieces: Sequence[A], engine: str, jobs: int | None
) -> Iterator[tuple[int, B | _Failure]]:
    known(engine)
    jobs = min(jobs or os.cpu_count() or 1, max(len(pieces), 1))
    if engine == "ray":
        return _on_ray(work, pieces, jobs)
    if jobs == 1:
        return ((number, _guarded(work, piece)) for number, piece in enumerate(pieces))
    return _in_processes(work, pieces, jobs)


def known(engine: str) -> None:
    """Refuses an engine that there is not."""
    if engine not in ENGINES:
        raise NpuscopeError(f"no engine '{engine}'", remedy=f"Engines: {', '.join(ENGINES)}.")


def _guarded(work: Callable[[A], B], piece: A) -> B | _Failure:
    try:
        return work(piece)
    except NpuscopeError as error:
        words = ("what", "path", "line", "record", "remedy")
        return _Failure(type(error), {word: getattr(error, word) for word in words})


def _in_processes(work: Callable[[A], B], pieces: Sequence[A], jobs: int) -> Iterator[tuple[int, B | _Failure]]:
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # a fork would copy the locks of Polars' threads in whatever state they are
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin) as pool:
        try:  # not by pool.map: it cancels what is left, which a pool whose workers are killed stumbles over
            numbers = {pool.submit(_guarded, work, piece): number for number, piece in enumerate(pieces)}
            for done in as_completed(numbers):
                yield numbers.pop(done), done.result()
        except BrokenProcessPool as error:
            remedy = "It may have run out of memory: try fewer --jobs."
            raise NpuscopeError("a worker process died", remedy=remedy) from error
        except BaseException:  # an interrupt ends the work in progress too
            for process in list((getattr(pool, "_processes", None) or {}).values()):
                process.kill()  # before the pool is left, which would wait for all that was asked for
            raise


def _begin() -> None:
    """Ctrl-C reaches every process of a terminal; the parent answers it. A killed parent takes its workers along."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Without it a worker would wait for ever for work of a parent that was killed: it holds that pipe open itself."""
    from multiprocessing import parent_process

    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _on_ray(work: Callable[[A], B], pieces: Sequence[A], jobs: int) -> Iterator[tuple[int, B | _Failure]]:
    with cluster("ray", jobs):
        import ray

        remote: Any = ray.remote(max_retries=0)(_guarded)  # what ended a worker would end the next one, too
        numbers = {remote.remote(work, piece): number for number, piece in enumerate(pieces)}
        while numbers:
            (done,), _ = ray.wait([*numbers], num_returns=1)
            try:
                yield numbers.pop(done), ray.get(done)
            except ray.exceptions.RayError as error:
                told = " ".join(str(error).split())[:300]
                raise NpuscopeError(f"a worker on Ray ended without an answer: {told}") from error


@contextmanager
def cluster(engine: str, jobs: int | None = None) -> Iterator[None]:
    """Keeps one Ray cluster for all that is run within; processes of this machine need none."""
    if engine != "ray":
        yield
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves this machine
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise NpuscopeError("Ray is not installed", remedy="pip install 'npuscope[ray]'.") from error
    if ray.is_initialized():
        yield
        return
    _start(ray, jobs or os.cpu_count() or 1)
    try:
        yield
    finally:
        ray.shutdown()


def _probe(address: str) -> None:
    """Refuse an address nobody listens at: Ray itself would try for minutes."""
    host, _, port = address.rpartition("://")[2].partition(":")
    if not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise NpuscopeError(f"nobody answers at RAY_ADDRESS {address}", remedy="Or use --engine processes.") from error


def _start(ray: Any, jobs: int) -> None:
    """Join the cluster RAY_ADDRESS names; else start one here, for this run."""
    address = os.environ.get("RAY_ADDRESS")
    here = {} if address else {"include_dashboard": False, "num_cpus": jobs}
    _probe(address or "")
    try:
        ray.init(log_to_driver=False, logging_level="error", **here)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise NpuscopeError(
            f"Ray did not start: {error}", remedy="Check RAY_ADDRESS, or use --engine processes."
        ) from error
