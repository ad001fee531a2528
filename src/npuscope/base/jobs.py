"""One job: what it may use, how it ends that gives no answer, and how it travels and runs in its own process.

A job leaves without Python's farewell (`os._exit`): taking an interpreter with all these modules apart costs 0.2 s, and
whatever a job left behind (threads, half-read files) must not hold up its end.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import tempfile
from collections.abc import Iterator
from struct import Struct
from typing import Literal, NamedTuple, NoReturn

from npuscope.base.errors import NpuscopeError
from npuscope.base.frozen import dataclass
from npuscope.base.process_memory import collect_rarely, on_one_stack

GIB = 1024**3
Kind = Literal["refused", "raised", "exited", "crashed", "time", "memory", "cancelled", "lost"]
_SLACK = GIB  # of address space beyond the limit: threads and arenas reserve what they never touch
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_HEAD = Struct("<4sQ")
_MARK = b"npuj"  # so that bytes that somebody else wrote to a pipe are not taken for a length


class Limits(NamedTuple):
    """Of one job: wall time in seconds, and bytes beyond what the warm process that it is forked from holds."""

    seconds: float = 120.0
    bytes: int = 4 * GIB


@dataclass(frozen=True)
class Failed:
    """A job without an answer, and why in one sentence.

    refused: npuscope told the user what to mend, as `error` does. raised: an exception. exited: it left by itself
    (sys.exit). crashed: a signal ended it. time, memory: it went over a limit. cancelled: nobody wants it. lost: the
    server was ended.
    """

    kind: Kind
    message: str
    error: NpuscopeError | None = None


@dataclass(frozen=True)
class Used:
    """What a job took: CPU time in seconds, and the most memory in bytes, with what it shared with its server."""

    cpu_seconds: float = 0.0
    peak_bytes: int = 0


class JobPlace(NamedTuple):
    """Where a job believes to be: the folder and the environment of whoever wants its answer."""

    folder: str
    environment: dict[str, str]

    @staticmethod
    def here() -> JobPlace:
        return JobPlace(os.getcwd(), dict(os.environ))


class Order(NamedTuple):
    """A job as it travels: `call` is a pickled (function, argument), opened only in the job's process."""

    number: int
    call: bytes
    limits: Limits
    place: JobPlace


class NotOurs(Exception):
    """The stream has bytes that no frame begins with."""


def framed(message: object) -> bytes:
    """A message over a stream of bytes: a pickle behind its length. Both ends are ours and of one user."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _HEAD.pack(_MARK, len(body)) + body


class Frames:
    """Collects messages that arrive in pieces."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The bodies of the messages that are whole now."""
        self._bytes += piece
        while len(self._bytes) >= _HEAD.size:
            mark, size = _HEAD.unpack_from(self._bytes)
            if mark != _MARK:
                raise NotOurs
            end = _HEAD.size + size
            if len(self._bytes) < end:
                return
            yield bytes(self._bytes[_HEAD.size : end])
            del self._bytes[:end]


def run_job(order: Order, answer: int) -> NoReturn:
    """Runs in the new process and never returns; `answer` is the pipe to write to."""
    with contextlib.suppress(PermissionError):  # it leads a session already where it was spawned
        os.setsid()  # so that its own children can be ended with it
    if sys.platform == "linux":  # ends with its server, however that ends; elsewhere the server ends its jobs
        import ctypes

        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    nowhere = os.open(os.devnull, os.O_RDWR)  # what a job prints goes nowhere, and what it reads is empty
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.closerange(3, answer)
    os.closerange(answer + 1, 4096)
    collect_rarely()
    own = os.getpid()
    view = memoryview(_answer(order))
    if os.getpid() == own:  # not what the job forked and forgot
        while view:
            view = view[os.write(answer, view) :]
    os._exit(0)


def _answer(order: Order) -> bytes:
    """A frame with (the value,), or with why there is none."""
    try:
        os.chdir(order.place.folder)
        os.environ.clear()
        os.environ.update(order.place.environment)
        tempfile.tempdir = None  # the warm process may have looked it up
        _set_memory(order.limits.bytes)
        function, argument = pickle.loads(order.call)
        return framed((on_one_stack(lambda: function(argument)),))
    except NpuscopeError as error:
        failed = Failed("refused", str(error), error)
    except MemoryError:
        failed = Failed("memory", over_memory(order.limits))
    except SystemExit as error:
        failed = Failed("exited", f"it left by itself (exit code {error.code})")
    except BaseException as error:
        words = " ".join(str(error)[:3000].split())[:300]
        failed = Failed("raised", f"{type(error).__name__}: {words}".removesuffix(": "))
    return framed(failed)


def over_memory(limits: Limits) -> str:
    return f"it took more than {limits.bytes / GIB:.3g} GiB of memory"


def _set_memory(most: int) -> None:
    """A hard end far above the limit, for one huge allocation; the server watches the limit itself."""
    if sys.platform != "linux":
        return
    import resource

    with open("/proc/self/statm") as file:
        room = int(file.read().split()[0]) * resource.getpagesize() + most + _SLACK
    _, hardest = resource.getrlimit(resource.RLIMIT_AS)
    if hardest == resource.RLIM_INFINITY or room < hardest:
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash leaves no file


def failure(status: int, limits: Limits, peak: int) -> Failed:
    """A job that ended without an answer, by how the system says that it ended."""
    if not os.WIFSIGNALED(status):
        return Failed("exited", f"it left by itself (exit code {os.WEXITSTATUS(status)})")
    number = os.WTERMSIG(status)
    if peak > limits.bytes * 0.95 and number in (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV):
        return Failed("memory", over_memory(limits))
    known = number in [*signal.Signals]
    meaning = signal.strsignal(number) if known else None
    name = signal.Signals(number).name if known else f"signal {number}"
    hint = ", perhaps by a system out of memory: fewer jobs at a time need less" if number == signal.SIGKILL else ""
    return Failed("crashed", f"it was ended by {name}{f' ({meaning.lower()})' if meaning else ''}{hint}")
