"""One job in its own process: limits set, one function called, its answer written to a pipe, and out.

It leaves without Python's farewell (`os._exit`): taking an interpreter with all these modules apart costs 0.2 s, and
whatever a job left behind (threads, half-read files) must not hold up its end.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
from typing import NamedTuple, NoReturn

from npuscope.answer.frames import framed
from npuscope.answer.job_limits import GIB, Failed, Kind, Limits
from npuscope.base.process_memory import collect_rarely

_SLACK = GIB  # of address space beyond the limit: threads and arenas reserve what they never touch
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class Place(NamedTuple):
    """Where a job believes to be: the folder and the environment of whoever wants its answer."""

    folder: str
    environment: dict[str, str]

    @staticmethod
    def here() -> Place:
        return Place(os.getcwd(), dict(os.environ))


class Order(NamedTuple):
    """A job as it travels: `call` is a pickled (function, argument), opened in the job's process alone."""

    number: int
    call: bytes
    limits: Limits
    place: Place


def run_job(order: Order, answer: int) -> NoReturn:
    """Runs in the new process and never returns; `answer` is the pipe to write to."""
    with contextlib.suppress(PermissionError):  # it leads a session already where it was spawned
        os.setsid()  # so that its own children can be ended with it
    _end_with_parent()
    _set_streams(answer)
    collect_rarely()
    own = os.getpid()
    message = _answer(order)
    if os.getpid() == own:  # not what the job forked and forgot
        _write(answer, message)
    os._exit(0)


def _answer(order: Order) -> bytes:
    """A frame with (None, the value), or with what kept the job from having one and a sentence."""
    kind: Kind
    from npuscope.base.errors import NpuscopeError

    try:
        os.chdir(order.place.folder)
        os.environ.clear()
        os.environ.update(order.place.environment)
        _set_memory(order.limits.bytes)
        function, argument = pickle.loads(order.call)
        return framed((None, function(argument)))
    except NpuscopeError as error:
        kind, told = "refused", str(error)
    except MemoryError:
        kind, told = "memory", over_memory(order.limits)
    except SystemExit as error:
        kind, told = "exited", f"it left by itself (exit code {error.code})"
    except BaseException as error:
        kind, told = "raised", f"{type(error).__name__}: {' '.join(str(error)[:3000].split())[:300]}".removesuffix(": ")
    return framed((kind, told))


def over_memory(limits: Limits) -> str:
    return f"it took more than {limits.bytes / GIB:.3g} GiB of memory"


def _end_with_parent() -> None:
    """Linux ends the job with its server, however that ends; elsewhere the server ends its jobs when it leaves."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def _set_streams(answer: int) -> None:
    """What a job prints goes nowhere, and what it reads is empty: the answer has a pipe of its own."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.closerange(3, answer)
    os.closerange(answer + 1, 4096)


def _set_memory(most: int) -> None:
    """A hard end far above the limit, for one huge allocation; the server watches the limit itself."""
    if sys.platform != "linux":
        return
    import resource

    with open("/proc/self/statm") as file:
        held = int(file.read().split()[0]) * resource.getpagesize()
    room = held + most + _SLACK
    _, hardest = resource.getrlimit(resource.RLIMIT_AS)
    if hardest == resource.RLIM_INFINITY or room < hardest:
        resource.setrlimit(resource.RLIMIT_AS, (room, room))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash leaves no file


def _write(answer: int, message: bytes) -> None:
    view = memoryview(message)
    while view:
        view = view[os.write(answer, view) :]


def failure(status: int, limits: Limits, peak: int) -> Failed:
    """A job that ended without an answer, by how the system says that it ended."""
    if not os.WIFSIGNALED(status):
        return Failed("exited", f"it left by itself (exit code {os.WEXITSTATUS(status)})")
    number = os.WTERMSIG(status)
    if peak > limits.bytes * 0.95 and number in (signal.SIGKILL, signal.SIGABRT, signal.SIGSEGV):
        return Failed("memory", over_memory(limits))
    hint = ", perhaps by a system out of memory: fewer jobs at a time need less" if number == signal.SIGKILL else ""
    return Failed("crashed", f"it was ended by {_name(number)}{hint}")


def _name(number: int) -> str:
    """SIGSEGV (segmentation fault)."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
    told = signal.strsignal(number)
    return f"{name} ({told.lower()})" if told else name
