"""Many independent pieces of work: in processes of this machine, or on a Ray cluster. One function, same results.

The function and its pieces must pickle; results come back in the order of the pieces.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from threading import Thread
from typing import Any, NamedTuple, TypeVar

from npuscope.errors import NpuscopeError

A = TypeVar("A")
B = TypeVar("B")
ENGINES = ("processes", "ray")


class _Failure(NamedTuple):
    """What a user can mend, carried home as data: exceptions with keywords do not pickle everywhere."""

    kind: type[NpuscopeError]
    told: dict[str, Any]


def run(work: Callable[[A], B], pieces: Sequence[A], engine: str = "processes", jobs: int | None = None) -> Iterator[B]:
    """The result of each piece, as soon as it and those before it are done; raises the first piece's error."""
    if engine not in ENGINES:
        raise NpuscopeError(f"no engine '{engine}'", remedy=f"Engines: {', '.join(ENGINES)}.")
    jobs = min(jobs or os.cpu_count() or 1, max(len(pieces), 1))
    if engine == "ray":
        results = _on_ray(work, pieces, jobs)
    elif jobs == 1:
        results = (_guarded(work, piece) for piece in pieces)
    else:
        results = _in_processes(work, pieces, jobs)
    for result in results:
        if isinstance(result, _Failure):
            raise result.kind(**result.told)
        yield result


def _guarded(work: Callable[[A], B], piece: A) -> B | _Failure:
    try:
        return work(piece)
    except NpuscopeError as error:
        words = ("what", "path", "line", "record", "remedy")
        return _Failure(type(error), {word: getattr(error, word) for word in words})


def _in_processes(work: Callable[[A], B], pieces: Sequence[A], jobs: int) -> Iterator[B | _Failure]:
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool
    from multiprocessing import get_context

    # a fork would copy the locks of Polars' threads in whatever state they are
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin) as pool:
        try:  # not by pool.map: it cancels what is left, which a pool whose workers are killed stumbles over
            waiting = [pool.submit(_guarded, work, piece) for piece in pieces][::-1]
            while waiting:
                yield waiting.pop().result()
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


def _on_ray(work: Callable[[A], B], pieces: Sequence[A], jobs: int) -> Iterator[B | _Failure]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves this machine
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise NpuscopeError("Ray is not installed", remedy="pip install 'npuscope[ray]'.") from error
    started = not ray.is_initialized()
    if started:
        _start(ray, jobs)
    try:
        remote: Any = ray.remote(_guarded)
        for result in [remote.remote(work, piece) for piece in pieces]:
            yield ray.get(result)
    finally:
        if started:
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
