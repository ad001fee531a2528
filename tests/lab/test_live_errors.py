"""A program that does not run, in a real browser: the error stands at its line, and the last good run stays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Watched, chromium, watched_page
from lab_server import lab

from tests.lab.app import state, until
from tests.lab.test_live_page import PROGRAM, save, shown

SIZES = "# of the program\nROWS = 64\n"
TEXT = PROGRAM.replace("[64, TILE]", "[ROWS, TILE]").replace("COLS, TILE =", "from sizes import ROWS\n\nCOLS, TILE =")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    with watched_page(browser, viewport={"width": 1300, "height": 900}) as found:
        yield found
        assert [one for one in found.errors if "ERR_" not in one] == []


def fault(page: Any) -> tuple[str, str, str]:
    """The line that is marked, its text, what stands under it."""
    until(page, "document.querySelector('tr.failed') !== null")
    row = page.locator("tr.failed")
    assert row.count() == 1
    return str(row.get_attribute("data-line")), row.locator("code").inner_text(), page.locator("tr.fault").inner_text()


def test_errors_stand_at_their_lines_and_times_stay_where_nothing_changed(watched: Watched, tmp_path: Path) -> None:
    file, sizes, page = tmp_path / "program.py", tmp_path / "sizes.py", watched.page
    file.write_text(TEXT)
    sizes.write_text(SIZES)
    with lab(file) as running:
        page.goto(running.url)
        shown(page, "1")
        until(page, "npuscope.store.state.runs[0].panels.source !== undefined")
        before = timed(page)
        # WHEN a line is added that raises, THEN the banner leads to it, also from another panel
        save(file, TEXT.replace("COLS, TILE =", "raise ValueError('no')\nCOLS, TILE ="))
        until(page, "document.querySelector('.trouble button') !== null")
        assert state(page, "panel") == "timeline"
        page.locator(".trouble button").click()
        assert state(page, "panel") == "source"
        assert fault(page) == ("6", "raise ValueError('no')", "✖ ValueError: no")
        assert page.locator("tr.failed").is_visible()
        assert state(page, "run") == "1"  # the last good run stays
        assert page.locator(".timeline canvas").count() > 0
        # AND lines that are as they were keep their times, though their numbers have moved
        assert timed(page) == {line + 1: words for line, words in before.items()}
        page.locator("tr[data-line='12'] td.text").click()
        assert state(page, "selection.line") == 11  # of the run, whose slices it marks
        # WHEN the text is no Python
        save(file, TEXT.replace("TILE = 256, 64", "TILE = = 256, 64"))
        until(page, "npuscope.store.state.live.broken?.name === 'save 3'")
        assert fault(page)[:2] == ("6", "COLS, TILE = = 256, 64")
        assert "SyntaxError" in fault(page)[2]
        # WHEN it is a module that it imports
        save(file, TEXT)
        until(page, "npuscope.store.state.live.broken === null")
        assert page.locator("tr.failed").count() == 0
        save(sizes, f"{SIZES}1 / 0\n")
        until(page, "npuscope.store.state.live.broken !== null")
        assert fault(page) == ("3", "1 / 0", "✖ ZeroDivisionError: division by zero")
        assert page.locator(".files button[aria-pressed=true]").inner_text() == "✖ sizes.py"
        # WHEN what does not fit is found, THEN it stands there with what to do
        save(sizes, SIZES)
        until(page, "npuscope.store.state.live.broken === null")
        save(file, TEXT.replace("256, 64", "8192, 8192"))
        until(page, "npuscope.store.state.live.broken !== null")
        assert fault(page)[0] == "12"
        assert "buffer usage" in fault(page)[2]
        # AND when it runs again all of that is gone
        save(file, TEXT)
        until(page, "npuscope.store.state.live.broken === null")
        assert page.locator(".trouble, tr.failed, tr.fault").count() == 0


def timed(page: Any) -> dict[int, str]:
    """Lines that have a time, by the numbers under which they are shown."""
    if state(page, "panel") != "source":
        page.get_by_role("tab", name="Source").click()
        page.locator("table.code").wait_for()
        found = timed(page)
        page.get_by_role("tab", name="Timeline").click()
        return found
    rows = "[...document.querySelectorAll('tr.has')].map(row => [Number(row.dataset.line), row.cells[2].textContent])"
    return {int(line): str(words) for line, words in page.evaluate(rows)}


def test_a_program_that_never_ran_shows_its_error_too_and_its_first_run_when_it_is_mended(
    watched: Watched, tmp_path: Path
) -> None:
    file, page = tmp_path / "program.py", watched.page
    file.write_text(PROGRAM.replace("256, 64", "256, none"))
    with lab(file) as running:
        page.goto(running.url)
        assert fault(page) == ("4", "COLS, TILE = 256, none", "✖ NameError: name 'none' is not defined")
        save(file, PROGRAM)
        shown(page, "2")
        assert page.locator(".timeline canvas").count() > 0


def test_a_file_that_goes_is_told_and_forgotten_when_it_is_back(watched: Watched, tmp_path: Path) -> None:
    file, page = tmp_path / "program.py", watched.page
    file.write_text(PROGRAM)
    with lab(file) as running:
        page.goto(running.url)
        shown(page, "1")
        file.unlink()
        until(page, "document.querySelector('.status').textContent.includes('program.py is gone')")
        # a page that comes later hears it, too
        page.reload()
        until(page, "document.querySelector('.status')?.textContent.includes('program.py is gone')")
        # WHEN a version's source is written back
        page.get_by_role("tab", name="Versions").click()
        page.locator('tr[data-version="1"]').get_by_role("button", name="source").click()
        write = page.get_by_role("button", name="write these files back")
        write.click()
        page.get_by_role("button", name="overwrite the files on disk (save 1) with those of “save 1”?").click()
        until(page, "!document.querySelector('.status').textContent.includes('gone')")
        assert file.read_text() == PROGRAM
