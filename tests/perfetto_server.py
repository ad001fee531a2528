"""The Perfetto UI with one trace at a time, for tests of what our writers make; nothing of the lab's server."""

from __future__ import annotations

import mimetypes
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from npuscope.lab.server import PerfettoUi


class PerfettoServer(ThreadingHTTPServer):
    """At `url`; `trace` is what the UI opens."""

    daemon_threads = True

    def __init__(self, interface: PerfettoUi) -> None:
        self.trace: Path | None = None
        super().__init__(("127.0.0.1", 0), partial(_Handler, interface))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


class _Handler(BaseHTTPRequestHandler):
    server: PerfettoServer

    def __init__(self, interface: PerfettoUi, *arguments: object) -> None:
        self._interface = interface
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        address = unquote(urlsplit(self.path).path)[1:]
        text, file = self._interface.text(address), self._interface.file(address)
        if address == "localtrace":
            file = self.server.trace
        if text is None and file is None:
            self.send_error(404)
            return
        body = text.encode() if text is not None else file.read_bytes() if file is not None else b""
        self.send_response(200)
        kind = {".js": "text/javascript", ".wasm": "application/wasm"}.get(Path(address).suffix)
        self.send_header("Content-Type", kind or mimetypes.guess_type(address or "x.html")[0] or "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody's news."""
