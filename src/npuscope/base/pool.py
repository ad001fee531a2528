"""Work in processes of their own, of this machine or of a Ray cluster: each job in a fresh one that it may ruin.

with Pool(workers=2) as pool:
    handle = pool.ask(function, argument, Limits(seconds=10, bytes=2 * GIB))
    value = handle.result()  # or Failed(kind, message)

for value in run(function, pieces, engine="ray"):  # in the order of the pieces

A job that loops, crashes, exits, prints rubbish or eats memory costs its own answer and nothing else. The limits are
for mistakes: a job that means harm runs with the user's rights, as any program does that the user starts.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, wait
from functools import cache, partial
from importlib import import_module
from itertools import count
from threading import Lock, Thread, current_thread
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar, cast

from npuscope.base.errors import NpuscopeError
from npuscope.base.files import remove_tree
from npuscope.base.fork_server import QUIET
from npuscope.base.frozen import dataclass
from npuscope.base.jobs import Failed, Frames, JobPlace, Limits, Order, Used, framed
from npuscope.base.plugins import not_installed

A = TypeVar("A")
B = TypeVar("B")
ENGINES = ("processes", "ray")
STORE = 1 << 27  # bytes
PATIENT = Limits(math.inf, 1 << 60)  # whoever runs what is their own waits for it
HEARTBEAT_S = 0.5  # how often whoever waits for an answer hears that there is none yet
_SERVE = "import sys; sys.path[:] = {path!r}; from npuscope.base.fork_server import main; main{arguments!r}"
_LOST = Failed(
    "lost", "npuscope's helper process was killed while this ran: by the program itself, or by a system out of memory"
)


class Named(Generic[A, B]):
    """A function by its name: whoever asks for it need not load its module."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def __call__(self, argument: A) -> B:
        return cast(B, getattr(import_module(self.module), self.name)(argument))


class Handle(Generic[B]):
    """One job: waiting, under way or done. `cancel` ends it, or takes it out of the queue: it is then
    Failed("cancelled"); one that is done stays so."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.cancel = cancel
        self._done: Future[tuple[bytes | Failed, Used]] = Future()

    def result(self, timeout: float | None = None) -> B | Failed:
        """The job's value, or why there is none; waits for it, at most so many seconds (TimeoutError)."""
        body, _ = self._done.result(timeout)
        if isinstance(body, Failed):
            return body
        try:
            answer = pickle.loads(body)
            return answer if isinstance(answer, Failed) else cast(B, answer[0])
        except Exception as error:
            return Failed("crashed", f"its answer cannot be read ({type(error).__name__})")

    @property
    def used(self) -> Used:
        """What it took; waits for its end."""
        return self._done.result()[1]

    @property
    def done(self) -> bool:
        return self._done.done()

    def when_done(self, call: Callable[[Handle[B]], None]) -> None:
        """Calls back in another thread, or at once where it is done."""
        self._done.add_done_callback(lambda _: call(self))

    def settle(self, answer: bytes | Failed, used: Used) -> None:
        with contextlib.suppress(InvalidStateError):
            self._done.set_result((answer, used))


class _Link:
    """One server with the jobs that it was asked for."""

    def __init__(self, workers: int, modules: Sequence[str], forks: bool) -> None:
        own, other = socket.socketpair()
        self.scratch = tempfile.mkdtemp(prefix="npuscope-jobs-")
        arguments = (other.fileno(), workers, tuple(modules), forks, self.scratch)
        script = _SERVE.format(path=[os.path.abspath(place) for place in sys.path], arguments=arguments)
        with other:
            self.process = subprocess.Popen(
                [sys.executable, "-c", script],
                pass_fds=(other.fileno(),),
                env={**os.environ, **QUIET} if forks else None,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
        self.socket, self.lock = own, Lock()
        self.handles: dict[int, Handle[Any]] = {}
        self.is_lost = False
        self.listener = Thread(target=self._listen, daemon=True)
        self.listener.start()

    def send(self, message: object) -> bool:
        with self.lock:
            try:
                self.socket.sendall(framed(message))
            except OSError:
                return False
        return True

    def _listen(self) -> None:
        frames = Frames()
        with contextlib.suppress(OSError):
            while piece := self.socket.recv(1 << 20):
                for body in frames.feed(piece):
                    number, answer, used = pickle.loads(body)
                    if (handle := self.handles.pop(number, None)) is not None:
                        handle.settle(answer, used)
        self.is_lost = True
        while self.handles:
            self.handles.popitem()[1].settle(_LOST, Used())

    def close(self) -> None:
        """Ends the server and all jobs."""
        with contextlib.suppress(OSError):  # the server was gone
            self.socket.shutdown(socket.SHUT_RDWR)
        if current_thread() is not self.listener:  # a callback, or a pool that is let go, may end it from there
            self.listener.join()
        self.socket.close()
        self.process.wait()
        remove_tree(self.scratch)  # the server has, unless a job ended it


class Pool:
    """At most `workers` jobs at a time, the rest in a queue. `modules` are loaded once, before the first job.

    `forks=False` starts every job in a new interpreter, as is done by itself where forking is not safe.
    """

    def __init__(self, workers: int | None = None, modules: Iterable[str] = (), *, forks: bool = True) -> None:
        if sys.platform == "win32":  # no fork, no sessions, no sockets that a child inherits
            raise NpuscopeError(
                "jobs in processes of their own (lab, judge, tune, mcp) need Linux or macOS",
                remedy="On Windows use WSL. All other commands work without it.",
            )
        self.workers = workers or os.cpu_count() or 1
        self.modules, self.forks = tuple(modules), forks
        self._numbers = count()
        self._start = Lock()
        self._link: _Link | None = _Link(self.workers, self.modules, forks)

    def ask(
        self, function: Callable[[A], B], argument: A, limits: Limits = Limits(), place: JobPlace | None = None
    ) -> Handle[B]:
        """Has `function(argument)` called in a process of its own. Both must pickle; `Named` does."""
        call = pickle.dumps((function, argument), pickle.HIGHEST_PROTOCOL)
        order = Order(next(self._numbers), call, limits, place or JobPlace.here())
        with self._start:
            if self._link is None:
                raise ValueError("the pool is closed")
            if self._link.is_lost:  # somebody ended it: the next job has a new one
                self._link.close()
                self._link = _Link(self.workers, self.modules, self.forks)
            link = self._link
        handle: Handle[B] = Handle(partial(link.send, order.number))
        link.handles[order.number] = handle
        if not link.send(order) or link.is_lost:
            handle.settle(_LOST, Used())
        return handle

    def close(self) -> None:
        """Ends all jobs, done or not."""
        with self._start:
            if self._link is not None:
                self._link.close()
                self._link = None

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_opening = Lock()


@cache
def _pools() -> dict[tuple[int, tuple[str, ...]], Pool]:
    atexit.register(close_pools)
    return {}


def shared_pool(workers: int, modules: tuple[str, ...] = ()) -> Pool:
    """A warm pool of this process; it stays for the next question."""
    with _opening:
        pools = _pools()
        if (workers, modules) not in pools:
            pools[workers, modules] = Pool(workers, modules)
        return pools[workers, modules]


def close_pools() -> None:
    """Ends the warm processes that are kept."""
    with _opening:
        pools = _pools()
        while pools:
            pools.popitem()[1].close()


@dataclass(frozen=True)
class Workers:
    """Where pieces of work run, how many at a time, and with which limits and modules their jobs."""

    engine: str = "processes"
    jobs: int | None = None
    limits: Limits = PATIENT
    modules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise NpuscopeError(f"no engine '{self.engine}'", remedy=f"Engines: {', '.join(ENGINES)}.")


class Done(NamedTuple):
    """What came of a job, and what it took."""

    value: Any
    used: Used


class _Raised(NamedTuple):
    error: NpuscopeError


class Caller:
    """Has functions called in processes of their own, one after another, for one piece of work."""

    def __init__(self, pool: Pool, limits: Limits, place: JobPlace) -> None:
        self._pool, self._limits, self._place = pool, limits, place
        self.handle: Handle[Any] | None = None
        self.cancelled = False

    def __call__(self, function: Callable[[A], B], argument: A) -> Done:
        """Waits for it. One that was lost with another that ended the server runs once more, in one of its own."""
        done = self._ask(self._pool, function, argument)
        if isinstance(done.value, Failed) and done.value.kind == "lost" and not self.cancelled:
            with Pool(1, self._pool.modules, forks=self._pool.forks) as own:
                return self._ask(own, function, argument)
        return done

    def _ask(self, pool: Pool, function: Callable[[A], B], argument: A) -> Done:
        self.handle = pool.ask(function, argument, self._limits, self._place)
        if self.cancelled:
            self.handle.cancel()
        return Done(self.handle.result(), self.handle.used)

    def cancel(self) -> None:
        self.cancelled = True
        if self.handle is not None:
            self.handle.cancel()


Work = Callable[[Caller, A], B]


def each(
    work: Work[A, B], pieces: Sequence[A], workers: Workers, idle: Callable[[], None] = lambda: None
) -> Generator[tuple[int, B]]:
    """What came of each piece with its number, as they end; `idle` is called while there is nothing.

    `work` runs here, and what it calls in processes. Whoever stops listening ends what is under way.
    """
    found = _on_ray(work, pieces, workers, idle) if workers.engine == "ray" else _here(work, pieces, workers, idle)
    # ended here, not wherever it would be collected: its own threads cannot wait for themselves
    with contextlib.closing(found):
        for number, result in found:
            if isinstance(result, _Raised):
                raise result.error
            yield number, result


def _here(
    work: Work[A, B], pieces: Sequence[A], workers: Workers, idle: Callable[[], None]
) -> Generator[tuple[int, B | _Raised]]:
    jobs, place = workers.jobs or os.cpu_count() or 1, JobPlace.here()
    pool = shared_pool(jobs, workers.modules)
    callers = [Caller(pool, workers.limits, place) for _ in pieces]
    with ThreadPoolExecutor(jobs) as threads:
        futures = {
            threads.submit(_guarded, work, caller, piece): number
            for number, (caller, piece) in enumerate(zip(callers, pieces, strict=True))
        }
        try:
            while futures:
                done, _ = wait(futures, HEARTBEAT_S, FIRST_COMPLETED)
                for one in done:
                    yield futures.pop(one), one.result()
                if not done:
                    idle()
        finally:
            for future in futures:
                future.cancel()
            for caller in callers:
                caller.cancel()


def _guarded(work: Work[A, B], call: Caller, piece: A) -> B | _Raised:
    try:
        return work(call, piece)
    except NpuscopeError as error:
        return _Raised(error)


def _alone(function: Callable[[A], B], call: Caller, piece: A) -> B | Failed:
    value = call(function, piece).value
    if isinstance(value, Failed) and value.error is not None:
        raise value.error
    return cast("B | Failed", value)


def run(
    function: Callable[[A], B], pieces: Sequence[A], workers: Workers = Workers(), isolated: bool = True
) -> Iterator[B | Failed]:
    """The result of each piece, as soon as it and those before it are done; raises what npuscope refuses.

    Not `isolated`, one at a time, or on Windows: in this process, which has loaded what another would have to load.
    """
    if sys.platform == "win32" or not (isolated or workers.engine == "ray" or _several(pieces, workers)):
        yield from map(function, pieces)
        return
    early: dict[int, B | Failed] = {}
    following = 0
    with contextlib.closing(each(partial(_alone, function), pieces, workers)) as found:
        for number, result in found:
            early[number] = result
            while following in early:
                yield early.pop(following)
                following += 1


def _several(pieces: Sequence[object], workers: Workers) -> bool:
    return min(workers.jobs or os.cpu_count() or 1, len(pieces)) > 1


def _on_worker(work: Work[A, B], workers: Workers, place: JobPlace, piece: A) -> B | _Raised:
    """On a machine of a cluster, whose worker keeps a warm process of its own."""
    return _guarded(work, Caller(shared_pool(1, workers.modules), workers.limits, place), piece)


def _on_ray(
    work: Work[A, B], pieces: Sequence[A], workers: Workers, idle: Callable[[], None]
) -> Generator[tuple[int, B | _Raised]]:
    ray = _ray(workers.jobs or os.cpu_count() or 1)
    remote: Any = ray.remote(max_retries=0)(_on_worker)  # what ended a worker would end the next one, too
    place = JobPlace.here()
    numbers = {remote.remote(work, workers, place, piece): number for number, piece in enumerate(pieces)}
    try:
        while numbers:
            done, _ = ray.wait([*numbers], num_returns=1, timeout=HEARTBEAT_S)
            for one in done:
                try:
                    yield numbers.pop(one), ray.get(one)
                except ray.exceptions.RayError as error:
                    words = " ".join(str(error).split())[:300]
                    raise NpuscopeError(f"a worker on Ray ended without an answer: {words}") from error
            if not done:
                idle()
    finally:
        for one in numbers:
            ray.cancel(one)


def _ray(jobs: int) -> Any:
    """Ray, joined to the cluster that RAY_ADDRESS names; else to one that is started here, for as long as we run."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves this machine
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError as error:
        raise not_installed("Ray is", "ray") from error
    if ray.is_initialized():
        return ray
    address = os.environ.get("RAY_ADDRESS")
    host, _, port = (address or "").rpartition("://")[2].partition(":")
    if port.isdecimal():
        try:  # Ray itself would try for minutes where nobody listens
            socket.create_connection((host, int(port)), timeout=5).close()
        except (OSError, OverflowError) as error:
            remedy = "Or use --engine processes."
            raise NpuscopeError(f"nobody answers at RAY_ADDRESS {address}", remedy=remedy) from error
    try:
        # what is asked and answered is small: Ray's own store would be 30 % of the machine's memory
        here = {} if address else {"include_dashboard": False, "num_cpus": jobs, "object_store_memory": STORE}
        ray.init(log_to_driver=False, logging_level="error", **here)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        remedy = "Check RAY_ADDRESS, or use --engine processes."
        raise NpuscopeError(f"Ray did not start: {error}", remedy=remedy) from error
    atexit.register(ray.shutdown)
    return ray
