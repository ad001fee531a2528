"""Jobs in warm processes, each in a fresh one that it may ruin.

with Pool(workers=2) as pool:
    handle = pool.ask(function, argument, Limits(seconds=10, bytes=2 * GIB))
    value = handle.result()  # or Failed(kind, told)

A job that loops, crashes, exits, prints rubbish or eats memory costs its own answer and nothing else. The limits are
for mistakes: a job that means harm runs with the user's rights, as any program does that the user starts.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from functools import cache, partial
from importlib import import_module
from itertools import count
from threading import Lock, Thread
from types import TracebackType
from typing import Generic, TypeVar, cast

from npuscope.answer.fork_server import QUIET
from npuscope.answer.frames import Frames, framed
from npuscope.answer.job_limits import Failed, Limits, Used
from npuscope.answer.job_process import Order, Place
from npuscope.base.errors import NpuscopeError

A = TypeVar("A")
B = TypeVar("B")
WARM = ("npuscope.answer.prediction", "npuscope.answer.numbers")  # what simulating and checking load
_SERVE = "import sys; sys.path[:] = {path!r}; from npuscope.answer.fork_server import main; main{arguments!r}"
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
    """One job: waiting, under way or done."""

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        self._done: Future[tuple[bytes | Failed, Used]] = Future()

    def result(self, timeout: float | None = None) -> B | Failed:
        """The job's value, or why there is none; waits for it, at most so many seconds (TimeoutError)."""
        body, _ = self._done.result(timeout)
        if isinstance(body, Failed):
            return body
        try:
            told = pickle.loads(body)
        except Exception as error:
            return Failed("crashed", f"its answer cannot be read ({type(error).__name__})")
        if isinstance(told, Failed):
            return told
        kind, value = told
        return Failed(kind, value) if kind is not None else cast(B, value)

    @property
    def used(self) -> Used:
        """What it took; waits for its end."""
        return self._done.result()[1]

    @property
    def done(self) -> bool:
        return self._done.done()

    def cancel(self) -> None:
        """Ends the job, or takes it out of the queue; it then is Failed("cancelled"). One that is done stays so."""
        self._cancel()

    def when_done(self, call: Callable[[Handle[B]], None]) -> None:
        """Calls back in another thread, or at once where it is done."""
        self._done.add_done_callback(lambda _: call(self))

    def _settle(self, body: bytes | Failed, used: Used) -> None:
        with contextlib.suppress(InvalidStateError):
            self._done.set_result((body, used))


class _Link:
    """One server with the jobs that it was asked for."""

    def __init__(self, workers: int, modules: Sequence[str], forks: bool) -> None:
        own, other = socket.socketpair()
        arguments = (other.fileno(), workers, tuple(modules), forks)
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
        self.handles: dict[int, Handle[object]] = {}
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
        try:
            while piece := self.socket.recv(1 << 20):
                for body in frames.feed(piece):
                    number, answer, used = pickle.loads(body)
                    handle = self.handles.pop(number, None)
                    if handle is not None:
                        handle._settle(answer, used)
        except OSError:
            pass
        self.is_lost = True
        while self.handles:
            self.handles.popitem()[1]._settle(_LOST, Used())

    def close(self) -> None:
        """Ends the server and all jobs."""
        with contextlib.suppress(OSError):  # the server was gone
            self.socket.shutdown(socket.SHUT_RDWR)
        self.listener.join()
        self.socket.close()
        self.process.wait()


def refuse_windows() -> None:
    """Which has no fork, no sessions and no sockets that a child inherits."""
    if sys.platform == "win32":
        raise NpuscopeError(
            "jobs in processes of their own (lab, judge, tune, mcp) need Linux or macOS",
            remedy="On Windows use WSL. All other commands work without it.",
        )


class Pool:
    """At most `workers` jobs at a time, the rest in a queue. `modules` are loaded once, before the first job.

    `forks=False` starts every job in a new interpreter, as is done by itself where forking is not safe.
    """

    def __init__(self, workers: int | None = None, modules: Iterable[str] = WARM, *, forks: bool = True) -> None:
        refuse_windows()
        self.workers = workers or os.cpu_count() or 1
        self.modules, self.forks = tuple(modules), forks
        self._numbers = count()
        self._start = Lock()
        self._link: _Link | None = self._linked()

    def ask(
        self, function: Callable[[A], B], argument: A, limits: Limits = Limits(), place: Place | None = None
    ) -> Handle[B]:
        """Has `function(argument)` called in a process of its own. Both must pickle; `Named` does."""
        call = pickle.dumps((function, argument), pickle.HIGHEST_PROTOCOL)
        order = Order(next(self._numbers), call, limits, place or Place.here())
        with self._start:
            if self._link is None:
                raise ValueError("the pool is closed")
            if self._link.is_lost:  # somebody ended it: the next job has a new one
                self._link.close()
                self._link = self._linked()
            link = self._link
        handle: Handle[B] = Handle(partial(link.send, order.number))
        link.handles[order.number] = cast(Handle[object], handle)
        if not link.send(order) or link.is_lost:
            handle._settle(_LOST, Used())
        return handle

    def close(self) -> None:
        """Ends all jobs, done or not."""
        with self._start:
            if self._link is not None:
                self._link.close()
                self._link = None

    def _linked(self) -> _Link:
        return _Link(self.workers, self.modules, self.forks)

    def __enter__(self) -> Pool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@cache
def _pools() -> dict[tuple[int, tuple[str, ...]], Pool]:
    atexit.register(close_pools)
    return {}


_opening = Lock()


def shared_pool(workers: int, modules: tuple[str, ...] = WARM) -> Pool:
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
