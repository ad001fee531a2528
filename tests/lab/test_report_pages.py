"""Pages of forward passes, the roofline and an alignment in a real browser: drawn, quiet, offline, and escaped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from browser import chromium, watched_page
from command import npuscope
from planted import QWEN, Plan, plant

from tests.report.memory_programs import written

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three passes; a kernel's type is markup."""
    plant(Plan(replace(QWEN, layers=4), ("decode",) * 3, stall=1), path := tmp_path_factory.mktemp("c") / "kernels.csv")
    path.write_text(path.read_text().replace("SwiGlu,", f"{EVIL},"))
    return path


@pytest.mark.parametrize(
    ("command", "marks", "count"),
    [
        (["forward"], ".column rect", 3 * 3),  # a column of three parts per pass
        (["roofline", "--device", "a3", "--pass", "0"], "circle.point", 1),
        (["align", "--pass", "0", "--predicted-pass", "2"], "figure canvas", 1),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_pages_draw_offline_and_escape_names(
    capture: Path, tmp_path: Path, command: list[str], marks: str, count: int
) -> None:
    page_file = tmp_path / "page.html"
    name, *options = command
    inputs = [capture, capture] if name == "align" else [capture]
    done = npuscope(name, *inputs, *options, "--html", page_file)
    assert done.returncode == 0, done.stderr
    with chromium() as browser, watched_page(browser) as watched:
        page = watched.page
        page.goto(page_file.as_uri())
        page.locator(marks).first.wait_for()
        assert page.locator(marks).count() >= count
        assert EVIL in page.locator("#panel").inner_text()
        assert page.locator("img").count() == 0
        assert page.locator(".timeline").is_hidden()  # it is about no single run
        assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]
        assert watched.errors == []
        assert all(url.startswith(("file:", "data:")) for url in watched.requests)


def test_a_roofline_names_the_point_under_the_pointer_and_under_the_keys(capture: Path, tmp_path: Path) -> None:
    page_file = tmp_path / "page.html"
    assert npuscope("roofline", capture, "--device", "a3", "--pass", "0", "--html", page_file).returncode == 0
    with chromium() as browser, watched_page(browser) as watched:
        page = watched.page
        page.goto(page_file.as_uri())
        first = page.locator("circle.point").last  # drawn last, so on top
        first.hover()
        text = page.locator(".tip").inner_text()
        assert text.splitlines()[0] in capture.read_text()  # a kernel of the capture
        assert "the chip's limit is" in text
        first.focus()
        page.keyboard.press("ArrowLeft")
        assert page.locator(".tip").inner_text() != text
        page.keyboard.press("Escape")
        assert page.locator(".tip").is_hidden()
        # tables sort by a click on a heading, by value and not by letters
        head = page.locator("th", has_text="lost").first
        head.click()
        assert head.get_attribute("aria-sort") == "descending"


def test_a_sweep_draws_every_setting_and_marks_the_best(tmp_path: Path) -> None:
    program = written(tmp_path / "layer.py")
    page_file = tmp_path / "page.html"
    done = npuscope("sweep", program, "--set", "TK=64,128,256", "--set", "TN=128,256", "--html", page_file, "--json")
    assert done.returncode == 0, done.stderr
    best = json.loads(done.stdout)[0]["variant"]
    with chromium() as browser, watched_page(browser, viewport={"width": 1200, "height": 900}) as watched:
        page = watched.page
        page.goto(page_file.as_uri())
        page.locator(".knob svg").nth(1).wait_for()
        assert [page.locator(".knob .title").nth(n).text_content() for n in range(2)] == ["TK", "TN"]
        assert page.locator(".knob .ring").count() == 2  # the best, once over each setting
        page.locator(".knob").first.locator("g.best").hover()
        assert page.locator(".tip").inner_text().startswith(f"{best}\n")
        assert "the best of all" in page.locator(".tip").inner_text()
        assert page.locator("g.bar.best").text_content().startswith(f"★ {best}")
        assert watched.errors == []
