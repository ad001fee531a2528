"""The lab as a user starts it, for tests: its process, its address, what it tells."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import httpx

PATIENCE_S = 600.0  # for what hangs: a busy machine is slow


@dataclass
class Lab:
    """A running lab."""

    process: subprocess.Popen[str]
    url: str
    client: httpx.Client

    @property
    def port(self) -> int:
        return int(self.url.split(":")[2].split("/")[0])

    @property
    def token(self) -> str:
        return self.url.split("/")[3]

    def get(self, address: str, **headers: str) -> httpx.Response:
        return self.client.get(self.url + address, headers=headers)

    def post(self, address: str, text: object) -> httpx.Response:
        return self.client.post(self.url + address, json=text)

    def versions(self) -> list[dict[str, Any]]:
        """All that have run or will."""
        with self.listening() as listener:
            found: list[dict[str, Any]] = listener.until("hello")["versions"]
            return found

    @contextmanager
    def listening(self) -> Iterator[Listener]:
        """What the server tells from now on."""
        place = socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S)
        with place:
            asked = f"GET /{self.token}/events HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n"
            place.sendall(asked.encode())
            listener = Listener(place)
            try:
                yield listener
            finally:
                with suppress(OSError):
                    place.shutdown(socket.SHUT_RDWR)
                listener.thread.join()


class Listener:
    """Events in their order, as one who waits for some of them reads them."""

    def __init__(self, place: socket.socket) -> None:
        self.heard: list[dict[str, Any]] = []
        self._queue: Queue[dict[str, Any] | None] = Queue()
        self.thread = threading.Thread(target=self._read, args=(place,), daemon=True)
        self.thread.start()

    def _read(self, place: socket.socket) -> None:
        with suppress(OSError), place.makefile("rb") as lines:  # every event is one line of its own, as a chunk
            for line in lines:
                if line.startswith(b"data: "):
                    self._queue.put(json.loads(line[6:]))
        self._queue.put(None)

    def until(self, *kinds: str, **fields: object) -> dict[str, Any]:
        """The next event of one of these types with these fields of its version."""
        while True:
            event = self._queue.get(timeout=PATIENCE_S)
            assert event is not None, f"the server ended; heard {self.heard}"
            self.heard.append(event)
            version = event.get("version", event)
            if event["type"] in kinds and all(version.get(name) == value for name, value in fields.items()):
                return event


@contextmanager
def lab(*arguments: str | Path, command: str = "lab") -> Iterator[Lab]:
    """`npuscope lab ARGUMENTS`, once it has printed its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "npuscope", command, *map(str, arguments), "--no-browser"]
        if "--" not in arguments
        else [sys.executable, "-m", "npuscope", command, "--no-browser", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/\S+/", line)
        assert found, line
        with httpx.Client(timeout=PATIENCE_S) as client:
            yield Lab(process, found.group(), client)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
