"""A server for one browser on this machine: it knows every address it answers beforehand, and nothing else.

It binds to 127.0.0.1, answers only requests addressed to it by that name (a page elsewhere cannot reach it through a
name that resolves here), and forbids its pages to load anything from another place.
"""

from __future__ import annotations

import mimetypes
import shutil
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

LOOPBACK = "127.0.0.1"
# the Perfetto UI compiles WebAssembly and starts workers from blobs
POLICY = (
    "default-src 'self' 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval' blob: data:; "
    "connect-src 'self' blob: data:; worker-src 'self' blob:; frame-ancestors 'self'"
)
PATIENCE_S = 30.0  # for a client to say what it wants, and then to take each piece of the answer
TYPES = {".wasm": "application/wasm", ".js": "text/javascript", ".pftrace": "application/octet-stream"}


@dataclass(frozen=True)
class Site:
    """What is served: address -> text or file."""

    texts: dict[str, str] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)


class Server(ThreadingHTTPServer):
    """Serves a site until it is shut down. A client that leaves is no news, and one that dawdles is left alone."""

    daemon_threads = True

    def __init__(self, site: Site, port: int = 0, patience: float = PATIENCE_S) -> None:
        self.patience = patience
        self.asking: dict[socket.socket, float] = {}  # clients that have not yet said what they want, since when
        super().__init__((LOOPBACK, port), partial(_Handler, site))

    def service_actions(self) -> None:
        """Twice a second. A limit for each read would not do: a byte now and then would keep a thread for ever."""
        for client, since in list(self.asking.items()):
            if time.monotonic() - since > self.patience:
                self.asking.pop(client, None)
                with suppress(OSError):  # it left by itself
                    client.shutdown(socket.SHUT_RDWR)

    def handle_error(self, *_: object) -> None:
        error = sys.exc_info()[1]
        if not isinstance(error, ConnectionError | TimeoutError):
            print(f"npuscope: a request was not answered ({type(error).__name__}: {error}).", file=sys.stderr)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def __init__(self, site: Site, *arguments: object) -> None:
        self._site = site
        super().__init__(*arguments)  # type: ignore[arg-type]

    def setup(self) -> None:
        self.request.settimeout(self.server.patience)  # for one read, or for one piece sent
        self.server.asking[self.request] = time.monotonic()
        super().setup()

    def finish(self) -> None:
        self.server.asking.pop(self.request, None)
        super().finish()

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _answer(self, *, body: bool) -> None:
        self.server.asking.pop(self.request, None)
        if self.headers.get("Host") not in (f"{LOOPBACK}:{self.server.port}", f"localhost:{self.server.port}"):
            self.send_error(HTTPStatus.FORBIDDEN, "this server answers only to its own address")
            return
        try:
            found = self._open(unquote(urlsplit(self.path).path))
        except (OSError, ValueError):  # an address that is none
            found = None
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        source, length, kind = found
        with source:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(length))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.send_header("Content-Security-Policy", POLICY)
            self.end_headers()
            if body:
                shutil.copyfileobj(source, self.wfile)

    def _open(self, address: str) -> tuple[BinaryIO, int, str] | None:
        if address in self._site.texts:
            data = self._site.texts[address].encode()
            return BytesIO(data), len(data), TYPES.get(PurePosixPath(address).suffix, "text/html; charset=utf-8")
        path = self._site.files.get(address)
        if path is None:
            return None
        kind = TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        return path.open("rb"), path.stat().st_size, kind

    def log_message(self, *_: object) -> None:
        """A browser's requests are nobody's news."""
