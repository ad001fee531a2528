"""The lab in a real browser: edit a file and watch two windows follow, a broken program, a knob, a lost server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from browser import chromium, watched_page
from lab_server import lab

from tests.lab.app import state, until

PROGRAM = """import numpy as np
import npuscope.tile as pl

COLS, TILE = 256, 64


@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for block in pl.spmd(COLS // TILE, name_hint="copy"):
        tile = pl.slice(x, [64, TILE], [0, block * TILE])
        y = pl.assemble(y, pl.add(tile, tile), [0, block * TILE])
    return y


program(np.zeros((64, COLS), np.float32), np.zeros((64, COLS), np.float32))
"""


def save(file: Path, text: str) -> None:
    """As editors do, in one step: a half-written file would be a version of its own."""
    other = file.with_suffix(".new")
    other.write_text(text)
    other.replace(file)


def shown(page: Any, id: str) -> None:
    until(page, f"globalThis.npuscope?.store.state.run === '{id}'")


def test_a_person_edits_a_program_and_the_page_follows(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    with (
        chromium() as browser,
        watched_page(browser) as watched,
        watched_page(browser) as other,
        lab(file) as running,
    ):
        page = watched.page
        for one in (page, other.page):
            one.goto(running.url)
            one.wait_for_selector(".app")  # opened before the first run, the page waits for it and is made anew
            shown(one, "1")
        until(page, "npuscope.store.state.runs[0].panels.knobs !== undefined")
        # GIVEN a reader who has zoomed and chosen a slice
        page.evaluate("npuscope.shell.pane.choose(npuscope.shell.pane.views[0], 0, false)")
        page.evaluate("npuscope.store.set({ window: [1000, 5000] })")
        # WHEN the file is saved
        save(file, PROGRAM.replace("256, 64", "256, 32"))
        # THEN both windows show the new version, and the reader's place is kept
        for one in (page, other.page):
            shown(one, "2")
        assert state(page, "window") == [1000, 5000]
        assert state(page, "selection.kernel") == "copy"
        assert state(page, "selection.run") == "2"
        assert state(page, "runs.map(run => run.id)") == ["1", "2"]
        assert page.locator("header h1").inner_text() == "program.py"
        # AND the header is the answer: which save, how it compares with the one before, and what was edited
        assert page.locator(".standing").inner_text() == "save 2 of 2"
        assert re.fullmatch(r"[\d.]+x save 1 \([\d.]+ to [\d.]+\), .*\d+%.*", page.locator(".ratio").inner_text())
        assert "since save 1: TILE 64 → 32 (program.py:4)" in page.locator(".since").inner_text()
        # WHEN a reader goes back, THEN the page says that it is old; one that is opened now shows the newest
        page.get_by_label("Run", exact=True).select_option("1")
        assert page.locator(".standing").inner_text() == "save 1 of 2"
        other.page.reload()
        shown(other.page, "2")
        assert other.page.locator(".newest").count() == 0
        page.locator(".newest").click()
        assert state(page, "run") == "2"
        # WHEN it is broken, THEN the error stands at its line and the last run stays
        save(file, PROGRAM.replace("COLS, TILE", "1 / 0\nCOLS, TILE"))
        until(page, "document.querySelector('.trouble') !== null")
        text = page.locator(".trouble").inner_text()
        assert "save 3 does not run. program.py:4: ZeroDivisionError: division by zero." in text
        assert state(page, "run") == "2"
        # AND when it is mended the error goes
        save(file, PROGRAM)
        shown(page, "4")
        until(page, "document.querySelector('.trouble') === null")
        # WHEN a knob is turned in one window, THEN that window shows the variant and the other lists it
        until(page, "npuscope.store.run().panels.knobs !== undefined")
        page.get_by_role("tab", name="Knobs").click()
        page.locator('[data-turn="TILE=128"]').click()
        shown(page, "5")
        assert state(page, "versions.at(-1).name") == "TILE=128"
        until(other.page, "npuscope.store.state.versions.at(-1).name === 'TILE=128'")
        assert state(other.page, "run") == "4"
        # WHEN its value is written into the file, THEN the next save has it
        page.locator('[data-knob="TILE"]').get_by_role("button", name="write into the file").click()
        shown(page, "6")
        assert "COLS, TILE = 256, 128" in file.read_text()
        # WHEN the file is edited in the page, THEN it is saved and followed, and the editor stays as it was
        page.get_by_role("tab", name="Source").click()
        page.get_by_role("button", name="edit", exact=False).click()
        editor = page.get_by_label("Text of program.py")
        editor.fill(editor.input_value().replace("256, 128", "256, 16"))
        page.keyboard.press("Control+s")
        shown(page, "7")
        assert "COLS, TILE = 256, 16" in file.read_text()
        assert editor.input_value() == file.read_text()
        # AND the save can be undone
        page.get_by_role("button", name="undo the save").click()
        shown(page, "8")
        assert "COLS, TILE = 256, 128" in file.read_text()
        # WHEN two versions are compared, THEN they stand beside each other with the lines that changed
        page.get_by_role("tab", name="Versions").click()
        page.locator('tr[data-version="2"]').get_by_role("button", name="compare").click()
        until(page, "npuscope.store.state.panel === 'compare'")
        assert (state(page, "beside"), state(page, "run")) == ("2", "8")  # A is the older
        changed = page.locator("table.diff").inner_text()
        assert "COLS, TILE = 256, 32" in changed
        assert "COLS, TILE = 256, 128" in changed
        # WHEN a version gets a name that is no text of ours, THEN it stays text
        page.get_by_role("tab", name="Versions").click()
        page.locator('tr[data-version="4"] td.name button').click()
        page.locator('tr[data-version="4"] input').fill("<b>fast</b>")
        page.keyboard.press("Enter")
        until(other.page, "npuscope.store.state.versions.some(one => one.name === '<b>fast</b>')")
        assert page.locator("table.versions b").count() == 0
        # WHEN the lab ends, THEN the page says so and keeps what it shows
        running.process.terminate()
        until(page, "npuscope.store.state.live.gone || npuscope.store.state.live.lost")
        assert "lab" in page.locator(".status").inner_text()
        assert page.locator(".timeline canvas").count() > 0
        requests = [
            one for one in (*watched.requests, *other.requests) if not one.startswith((running.url, "blob:", "data:"))
        ]
        assert requests == []
        assert [one for one in watched.errors if "ERR_" not in one] == []  # but for the server that is gone
