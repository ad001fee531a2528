"""The lab's server: for browsers of this machine that know its address.

It binds to 127.0.0.1. Every address has a random token, requests must name the server as it is called here (a page
elsewhere cannot reach it through a name that resolves here), those that come from another page are refused, and what
is served may load nothing from another place.
"""

from __future__ import annotations

import asyncio
import mimetypes
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from npuscope.answer.job_limits import Failed
from npuscope.base.errors import NpuscopeError
from npuscope.lab.document import as_json, document, page
from npuscope.lab.perfetto_ui import POLICY as PERFETTO_POLICY
from npuscope.lab.perfetto_ui import PerfettoUi
from npuscope.lab.session import Session
from npuscope.lab.versions import Version
from npuscope.lab.watching import watch

LOOPBACK = "127.0.0.1"
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; worker-src blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # an address holds the token
    "Cross-Origin-Resource-Policy": "same-origin",
}
LARGEST_BODY = 64 << 10
ALIVE_S = 10.0  # between signs of life to a listener
LEAVING_S = 2.0  # for answers under way, when the server ends
TYPES = {".wasm": "application/wasm", ".js": "text/javascript", ".pftrace": "application/octet-stream"}
Handler = Callable[[Request], Awaitable[Response]]


class Guard:
    """Lets through only requests that are meant for this server and come from its own pages."""

    def __init__(self, app: ASGIApp, port: int, token: str) -> None:
        self.app, self.token = app, token.encode()
        self.hosts = {f"{LOOPBACK}:{port}".encode(), f"localhost:{port}".encode()}
        self.origins = {b"http://" + host for host in self.hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        code, told = self._judged(scope)
        if code:
            await Response(told, code, HEADERS, "text/plain")(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _judged(self, scope: Scope) -> tuple[int, str]:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self.hosts:
            return 403, "this server answers only to its own address"
        if any(value not in self.origins for name, value in headers if name == b"origin"):
            return 403, "this server answers only to its own pages"
        sites = [value for name, value in headers if name == b"sec-fetch-site"]
        if any(value not in (b"same-origin", b"none") for value in sites):
            return 403, "this server answers only to its own pages"
        first = scope["path"].encode("utf-8", "surrogateescape").split(b"/")[1:2]
        if not first or not secrets.compare_digest(first[0], self.token):
            return 404, "nothing here"
        return 0, ""


def app_of(session: Session, port: int, token: str) -> ASGIApp:
    """All that is served, below the token."""
    interface = PerfettoUi()

    async def start(_: Request) -> Response:
        held = [run_json(one) for one in session.versions.all() if one.has_run]
        live = {
            "token": token,
            "program": session.subject.file if session.subject else None,
            "perfetto": interface.is_there,
            **session.hello(),
        }
        text = page(document(session.title, [], session.shared, live)).replace('"runs":[]', '"runs":[/*RUNS*/]', 1)
        runs = ",".join(one.decode().replace("<", "\\u003c") for one in held)
        return Response(
            text.replace("/*RUNS*/", runs, 1), 200, {**HEADERS, "Content-Security-Policy": POLICY}, "text/html"
        )

    async def run(request: Request) -> Response:
        version = session.versions.get(request.path_params["id"])
        return json_answer(run_json(version)) if version and version.has_run else missing()

    async def panels(request: Request) -> Response:
        version = session.versions.get(request.path_params["id"])
        return json_answer(version.made.panels) if version and version.made and version.made.panels else missing()

    async def sources(request: Request) -> Response:
        version = session.versions.get(request.path_params["id"])
        if version is None or version.made is None or version.measured:
            return missing()
        return json_answer(as_json(dict(version.made.sources)))

    async def events(_: Request) -> Response:
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(streamed(session), 200, headers, "text/event-stream")

    async def knob(request: Request) -> Response:
        told = await body_of(request)
        settings = told.get("settings")
        if session.subject is None or not isinstance(settings, dict) or not settings:
            return refused("settings of the program are missing")
        if not all(isinstance(name, str) and isinstance(value, str | int | float) for name, value in settings.items()):
            return refused("a setting is a name and a value")
        if any(not name or not str(value) for name, value in settings.items()):
            return refused("a setting is a name and a value")
        return json_answer(as_json({"id": session.turn({name: str(value) for name, value in settings.items()})}))

    async def version(request: Request) -> Response:
        told, id = await body_of(request), request.path_params["id"]
        if session.versions.get(id) is None:
            return missing()
        if told.get("write") is True:
            over = told.get("over")
            if not isinstance(over, str):
                return refused("the save that is written over is missing")
            return json_answer(as_json({"written": session.write_back(id, over)}))
        name = told.get("name")
        if not isinstance(name, str) or not name.strip():
            return refused("a name is missing")
        renamed = session.versions.rename(id, name.strip()[:80])
        assert renamed is not None
        session.tell({"type": "renamed", "version": renamed.as_dict()})
        return json_answer(as_json(renamed.as_dict()))

    async def compare(request: Request) -> Response:
        answer = await session.compare(request.path_params["a"], request.path_params["b"])
        return refused(answer.told, 409) if isinstance(answer, Failed) else json_answer(answer)

    async def inside(request: Request) -> Response:
        answer = await session.look_into(request.path_params["id"], request.path_params["body"])
        return refused(answer.told, 409) if isinstance(answer, Failed) else json_answer(answer)

    async def what_if(request: Request) -> Response:
        answer = await session.what_if(request.path_params["id"], await body_of(request))
        return refused(answer.told, 409) if isinstance(answer, Failed) else json_answer(answer)

    async def perfetto(request: Request) -> Response:
        id, address = request.path_params["id"], request.path_params["address"]
        headers = {**HEADERS, "Content-Security-Policy": PERFETTO_POLICY}
        if session.versions.get(id) is None or not interface.is_there:
            return missing()
        if address == "localtrace":
            trace = await session.perfetto(id)
            return missing() if trace is None else FileResponse(trace, 200, headers, "application/octet-stream")
        text = interface.text(address)
        if text is not None:
            kind = TYPES.get(PurePosixPath(address).suffix, "application/json")
            return Response(text, 200, headers, kind)
        file = interface.file(address)
        if file is None:
            return missing()
        kind = TYPES.get(file.suffix) or mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        return FileResponse(file, 200, headers, kind)

    async def perfetto_start(request: Request) -> Response:
        return RedirectResponse(f"/{token}/perfetto/{request.path_params['id']}/", 307, HEADERS)

    routes = [
        Route(f"/{token}/", start),
        Route(f"/{token}/run/{{id}}.json", run),
        Route(f"/{token}/panels/{{id}}.json", panels),
        Route(f"/{token}/sources/{{id}}.json", sources),
        Route(f"/{token}/events", events),
        Route(f"/{token}/knob", knob, methods=["POST"]),
        Route(f"/{token}/version/{{id}}", version, methods=["POST"]),
        Route(f"/{token}/compare/{{a}}/{{b}}.json", compare),
        Route(f"/{token}/inside/{{id}}/{{body:int}}.json", inside),
        Route(f"/{token}/whatif/{{id}}", what_if, methods=["POST"]),
        Route(f"/{token}/perfetto/{{id}}", perfetto_start),
        Route(f"/{token}/perfetto/{{id}}/{{address:path}}", perfetto),
    ]
    errors: Mapping[Any, Any] = {
        BadBody: lambda _, error: refused(str(error)),
        NpuscopeError: lambda _, error: refused(str(error), 409),  # a file that cannot be written back
        ClientDisconnect: lambda *_: missing(),
    }
    return Guard(Starlette(routes=routes, exception_handlers=errors), port, token)


def run_json(version: Version) -> bytes:
    """A run under its present name, with the panels that are made by now."""
    assert version.made is not None
    run = orjson.loads(version.made.run)
    run["name"] = version.name
    if version.made.panels:
        later = orjson.loads(version.made.panels)
        run["panels"] |= later["panels"]
        run["diagnosis"] = later["diagnosis"]
    return orjson.dumps(run)


class BadBody(Exception):
    """What was posted is not what is asked for."""


async def body_of(request: Request) -> dict[str, object]:
    """The JSON object that a page posts."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise BadBody("the body must be JSON")
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > LARGEST_BODY:
            raise BadBody("the body is too large")
    try:
        told = orjson.loads(bytes(found))
    except ValueError:
        raise BadBody("the body must be JSON") from None
    if not isinstance(told, dict):
        raise BadBody("the body must be a JSON object")
    return told


def json_answer(data: object) -> Response:
    assert isinstance(data, bytes)
    return Response(data, 200, HEADERS, "application/json")


def refused(told: str, code: int = 400) -> Response:
    return Response(as_json({"told": told}), code, HEADERS, "application/json")


def missing() -> Response:
    return refused("nothing here", 404)


async def streamed(session: Session) -> AsyncIterator[bytes]:
    """Events as browsers read them, with a sign of life now and then."""
    yield b"retry: 500\n\n"  # milliseconds until a page that lost touch asks again
    events = session.events()
    following: asyncio.Task[object] | None = None
    try:
        while True:
            following = following or asyncio.ensure_future(anext(events, None))
            done, _ = await asyncio.wait({following}, timeout=ALIVE_S)
            if not done:
                yield b": alive\n\n"
                continue
            event, following = following.result(), None
            if event is None:
                return
            yield b"data: " + as_json(event) + b"\n\n"
    finally:
        if following is not None:
            following.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await following
        await events.aclose()  # type: ignore[attr-defined]


def bound(port: int) -> socket.socket:
    """A socket of this machine alone; 0 takes a free port."""
    place = socket.socket(socket.AF_INET)
    place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        place.bind((LOOPBACK, port))
    except OSError as error:
        place.close()
        raise NpuscopeError(f"port {port} is not free ({error.strerror})", remedy="Choose another --port.") from error
    place.listen(128)
    return place


class _Server(uvicorn.Server):
    """Says goodbye to those who listen, who would keep it from ending."""

    def __init__(self, config: uvicorn.Config, session: Session) -> None:
        super().__init__(config)
        self.session = session

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.session.stop()
        await super().shutdown(sockets)


async def serve(session: Session, place: socket.socket, token: str, ready: Callable[[], None]) -> None:
    """Serves until it is interrupted; `ready` is called when pages can be asked for."""
    app = app_of(session, place.getsockname()[1], token)
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, lifespan="off", server_header=False, date_header=False,
        timeout_graceful_shutdown=int(LEAVING_S), timeout_keep_alive=30, ws="none",
    )  # fmt: skip
    server = _Server(config, session)
    async with session.open():
        watching = asyncio.create_task(watch(session)) if session.subject is not None else None
        ready()
        try:
            await server.serve(sockets=[place])
        finally:
            session.stop()
            if watching is not None:
                with suppress(asyncio.CancelledError):
                    await watching
