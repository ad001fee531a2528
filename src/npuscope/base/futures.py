"""Jobs in an event loop: their answers as futures, and what a job knows before it is done, sent over a socket."""

from __future__ import annotations

import asyncio
import contextlib
import pickle
import socket
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from npuscope.base.jobs import Failed
from npuscope.base.pool import Handle

B = TypeVar("B")
MOST = 1 << 20  # bytes that a socket holds before they are read


def then(handle: Handle[B], act: Callable[[B | Failed], None]) -> None:
    """Calls `act` in this event loop with a job's answer, unless the loop has ended by then."""
    loop = asyncio.get_running_loop()

    def done(one: Handle[B]) -> None:
        answer = one.result()
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(act, answer)

    handle.when_done(done)


async def awaited(handle: Handle[B]) -> B | Failed:
    """A job's answer. Whoever stops waiting ends the job."""
    done: asyncio.Future[B | Failed] = asyncio.get_running_loop().create_future()

    def settle(value: B | Failed) -> None:
        if not done.done():
            done.set_result(value)

    then(handle, settle)
    try:
        return await done
    except asyncio.CancelledError:
        handle.cancel()
        raise


def send_early(place: str, value: object) -> None:
    """From a job: what is known so far. That nobody listens any more is no reason to fail."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as there:
        there.connect(place)
        there.sendall(pickle.dumps(value))


@contextlib.asynccontextmanager
async def early_answers(place: str, act: Callable[[object], None]) -> AsyncIterator[None]:
    """Listens at a path for what jobs send early; a job that was ended in the middle has sent nothing."""

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            value = pickle.loads(await reader.read(-1))
        except (EOFError, pickle.UnpicklingError):
            return
        finally:
            writer.close()
        act(value)

    server = await asyncio.start_unix_server(take, place, limit=MOST)
    try:
        yield
    finally:
        server.close()
