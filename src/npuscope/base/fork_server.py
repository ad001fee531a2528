"""The process that jobs are forked from: heavy modules loaded once, one thread, and nothing of a job's ever in it.

It reads orders from its parent, starts at most so many jobs at a time, watches their time and memory, and passes
answers on. When the parent is gone, however, its end of the socket closes, and server and jobs end.

A fork copies one thread; a lock that another thread held would stay locked for ever in the child. So libraries are
loaded without their threads, and where one is found all the same each job is a new interpreter instead of a fork. One
thread is harmless: Polars starts it at import to delete files of queries that went out of memory, and until there is
such a query it holds nothing and sleeps (tests/answer/test_pool.py forks children that use Polars by the hundred).
"""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import pickle
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module

from npuscope.base.files import remove_tree, user_caches
from npuscope.base.jobs import Failed, Frames, NotOurs, Order, Used, failure, framed, over_memory, run_job

QUIET = {  # read when a library is loaded, and taken out of the environment again
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "_RJEM_MALLOC_CONF": "background_thread:false",
}
HARMLESS = frozenset({"polars-ooc-clea"})
RSS_UNIT = 1 if sys.platform == "darwin" else 1024  # bytes in getrusage's unit
LOOK_EVERY = 0.05  # seconds between looks at the memory of jobs
MOST_PROCESSES = 256  # of a job: more is a program that starts itself again and again
_ADOPT = 36  # PR_SET_CHILD_SUBREAPER
SPAWNED = "import sys; sys.path[:] = {path!r}; from npuscope.base.fork_server import spawned; spawned({fd}, {answer})"


@dataclass
class ForkedJob:
    """A job under way: `process` is its id, `base` the bytes that it held when it began."""

    order: Order
    process: int
    pipe: int
    began: float
    base: int
    frames: Frames = field(default_factory=Frames)
    answer: bytes | None = None
    failed: Failed | None = None
    peak: int = 0


def main(parent: int, workers: int, modules: Sequence[str], forks: bool, scratch: str) -> None:
    """Serves until the parent's end of the socket closes. Each job has its own temporary folder in `scratch`."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent answers Ctrl-C
    with socket.socket(fileno=parent) as link:
        forks = forks and sys.platform == "linux"
        if sys.platform == "linux":
            import ctypes

            ctypes.CDLL(None).prctl(_ADOPT, 1)  # what a job leaves running becomes ours, to be ended
        if forks:
            warm(modules)
            forks = not other_threads()
        Server(link, workers, forks, scratch, modules if forks else ()).serve()


def warm(modules: Sequence[str]) -> None:
    """Loads modules; one with a function `warm_up` is asked to do what it will need, once and here.

    One with a function `refresh` is asked before each job.
    """
    for name in modules:
        prepare: Callable[[], None] | None = getattr(import_module(name), "warm_up", None)
        if prepare is not None:
            prepare()
    for name in QUIET:
        os.environ.pop(name, None)
    gc.collect()
    gc.freeze()  # no child looks through, and so copies, what was made before it


def other_threads() -> list[str]:
    """Threads of this process that a fork would lose, by name."""
    own, names = str(os.getpid()), []
    for thread in os.listdir("/proc/self/task"):
        if thread != own:
            with contextlib.suppress(OSError), open(f"/proc/self/task/{thread}/comm") as file:
                names.append(file.read().strip())
    return [name for name in names if name not in HARMLESS]


class Server:
    """Orders wait in `waiting`; jobs under way are in `jobs`, by process."""

    def __init__(
        self, link: socket.socket, workers: int, forks: bool, scratch: str, modules: Sequence[str] = ()
    ) -> None:
        self.link, self.workers, self.forks, self.scratch = link, workers, forks, scratch
        asked = (getattr(sys.modules.get(name), "refresh", None) for name in modules)
        self.refresh: list[Callable[[], None]] = [refresh for refresh in asked if refresh is not None]
        self.waiting: deque[Order] = deque()
        self.jobs: dict[int, ForkedJob] = {}
        self.own = frozenset(_children(os.getpid()))  # the compiler in the background
        self.strangers: dict[int, set[int]] = {}  # by process: the jobs that were under way when it was first seen
        self.orders = Frames()
        self.events = selectors.DefaultSelector()
        self.woken, waker = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self.events.register(self.woken, selectors.EVENT_READ)
        self.events.register(link, selectors.EVENT_READ)

    def serve(self) -> None:
        try:
            while True:
                for key, _ in self.events.select(LOOK_EVERY if self.jobs else None):
                    if key.fileobj is self.link:
                        self._listen()
                    elif key.fd == self.woken:
                        os.read(self.woken, 4096)
                    else:
                        self._read(key.data)
                self._watch()
                self._reap()
                self._end_strangers()
                while self.waiting and len(self.jobs) < self.workers:
                    self._start(self.waiting.popleft())
        except (EOFError, ConnectionError):
            pass
        finally:
            for job in self.jobs.values():
                _kill(job.process)
            self.jobs.clear()
            self._end_strangers()
            remove_tree(self.scratch)

    def _listen(self) -> None:
        piece = self.link.recv(1 << 20)
        if not piece:
            raise EOFError
        for body in self.orders.feed(piece):
            message = pickle.loads(body)
            if isinstance(message, Order):
                self.waiting.append(message)
            else:
                self._cancel(message)

    def _cancel(self, number: int) -> None:
        given_up = Failed("cancelled", "it was cancelled")
        for order in [order for order in self.waiting if order.number == number]:
            self.waiting.remove(order)
            self._tell(number, pickle.dumps(given_up), Used())
        for job in self.jobs.values():
            if job.order.number == number:
                self._end(job, given_up)

    def _start(self, order: Order) -> None:
        for refresh in self.refresh:
            refresh()
        folder = os.path.join(self.scratch, str(order.number))
        os.makedirs(folder, exist_ok=True)
        environment = {**order.place.environment, "TMPDIR": folder}
        if not environment.get("HOME") and not environment.get("XDG_CACHE_HOME"):
            environment["XDG_CACHE_HOME"] = str(user_caches())  # which would be in the job's folder
        order = order._replace(place=order.place._replace(environment=environment))
        pipe, answer = os.pipe()
        base = _resident(os.getpid()) if self.forks else 0
        process = os.fork() if self.forks else _spawn(order, answer)
        if process == 0:
            signal.set_wakeup_fd(-1)
            for known in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
                signal.signal(known, signal.SIG_DFL)
            run_job(order, answer)
        os.close(answer)
        os.set_blocking(pipe, False)
        job = self.jobs[process] = ForkedJob(order, process, pipe, time.monotonic(), base)
        self.events.register(pipe, selectors.EVENT_READ, job)

    def _read(self, job: ForkedJob) -> None:
        """What there is of an answer; the first whole frame counts."""
        try:
            piece = os.read(job.pipe, 1 << 20)
            if piece:
                job.answer = next(job.frames.feed(piece), job.answer)
            else:
                self.events.unregister(job.pipe)
        except BlockingIOError:
            pass
        except NotOurs:
            self._end(job, Failed("crashed", "it wrote over its own answer"))

    def _watch(self) -> None:
        now = time.monotonic()
        for job in self.jobs.values():
            limits = job.order.limits
            family = _family(job.process)
            taken = max(_resident(job.process) - job.base, 0) if len(family) == 1 else sum(map(_own_share, family))
            job.peak = max(job.peak, taken)
            if len(family) > MOST_PROCESSES:
                self._end(job, Failed("crashed", f"it started more than {MOST_PROCESSES} processes, and was ended"))
            elif taken > limits.bytes:
                self._end(job, Failed("memory", over_memory(limits)))
            elif now - job.began > limits.seconds:
                self._end(job, Failed("time", f"it was not done after {limits.seconds:g} s"))

    def _end(self, job: ForkedJob, why: Failed) -> None:
        job.failed = job.failed or why
        _kill(job.process)

    def _reap(self) -> None:
        for process in list(self.jobs):
            done, status, usage = os.wait4(process, os.WNOHANG)
            if not done:
                continue
            job = self.jobs.pop(process)
            self._drain(job)
            _kill(process)  # what it started and left
            remove_tree(os.path.join(self.scratch, str(job.order.number)))
            peak = max(job.peak, usage.ru_maxrss * RSS_UNIT - job.base)
            body = job.answer  # which is not opened here
            if body is None or job.failed is not None:
                body = pickle.dumps(job.failed or failure(status, job.order.limits, peak))
            self._tell(job.order.number, body, Used(usage.ru_utime + usage.ru_stime, peak))

    def _end_strangers(self) -> None:
        """What a job left running, in a session of its own: ended when all jobs that it may be of have ended."""
        for process in _children(os.getpid()):
            if process not in self.jobs and process not in self.own:
                if not self.strangers.setdefault(process, {*self.jobs}) & self.jobs.keys():
                    _kill(process)
                with contextlib.suppress(ChildProcessError):
                    if os.waitpid(process, os.WNOHANG)[0]:
                        del self.strangers[process]

    def _drain(self, job: ForkedJob) -> None:
        with contextlib.suppress(OSError, NotOurs):
            while job.answer is None and (piece := os.read(job.pipe, 1 << 20)):
                job.answer = next(job.frames.feed(piece), None)
        with contextlib.suppress(KeyError):
            self.events.unregister(job.pipe)
        os.close(job.pipe)

    def _tell(self, number: int, body: bytes, used: Used) -> None:
        self.link.sendall(framed((number, body, used)))


def _spawn(order: Order, answer: int) -> int:
    """A new interpreter for a job, where forking is not safe. It takes its order from a pipe."""
    reading, writing = os.pipe()
    script = SPAWNED.format(path=sys.path, fd=reading, answer=answer)
    os.set_inheritable(answer, True)
    process = subprocess.Popen([sys.executable, "-c", script], pass_fds=(reading, answer), start_new_session=True)
    os.close(reading)
    with open(writing, "wb") as out, contextlib.suppress(BrokenPipeError):
        out.write(pickle.dumps(order))
    process.returncode = 0  # it is this server that waits for it
    return process.pid


def spawned(order: int, answer: int) -> None:
    """What a spawned interpreter does."""
    with open(order, "rb") as source:
        job = pickle.load(source)
    run_job(job, answer)


def _children(process: int) -> list[int]:
    """Of all its threads; none where the system does not say."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(OSError), open(f"/proc/{process}/task/{thread}/children") as file:
                found += map(int, file.read().split())
    return found


def _family(process: int) -> list[int]:
    """A process and all that come of it; where there are far too many not all of them."""
    found = [process]
    for one in found:  # grows meanwhile
        if len(found) <= MOST_PROCESSES:
            found += _children(one)
    return found


def _own_share(process: int) -> int:
    """Bytes that a process holds, of what it shares with others its part."""
    with contextlib.suppress(OSError), open(f"/proc/{process}/smaps_rollup") as file:
        for line in file:
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _resident(process: int) -> int:
    """Bytes of memory that a process holds; 0 where the system does not say."""
    try:
        with open(f"/proc/{process}/statm") as file:
            return int(file.read().split()[1]) * mmap.PAGESIZE
    except (OSError, ValueError, IndexError):
        return 0


def _kill(process: int) -> None:
    """A job and all that it started in its session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(process, signal.SIGKILL)
