"""Pages of forward passes, the roofline and an alignment in a real browser: drawn, quiet, offline, and escaped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from browser import chromium, watched_page
from command import npuscope
from planted import QWEN, Plan, plant

EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three passes; a kernel's type is markup."""
    plant(Plan(replace(QWEN, layers=4), ("decode",) * 3, stall=1), path := tmp_path_factory.mktemp("c") / "kernels.csv")
    path.write_text(path.read_text().replace("SwiGlu,", f"{EVIL},"))
    return path


@pytest.mark.parametrize(
    ("command", "marks"),
    [
        (["forward"], 3 * 3),  # a bar of three parts per pass
        (["roofline", "--device", "a3", "--pass", "0"], 1),
        (["align", "--pass", "0", "--predicted-pass", "2"], 2 * 50),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_pages_draw_offline_and_escape_names(capture: Path, tmp_path: Path, command: list[str], marks: int) -> None:
    page_file = tmp_path / "page.html"
    name, *options = command
    inputs = [capture, capture] if name == "align" else [capture]
    done = npuscope(name, *inputs, *options, "--html", page_file)
    assert done.returncode == 0, done.stderr
    with chromium() as browser, watched_page(browser) as watched:
        watched.page.goto(page_file.as_uri())
        assert watched.page.locator("svg rect, svg circle").count() >= marks
        assert EVIL in watched.page.content().replace("&lt;", "<").replace("&gt;", ">")
        assert watched.page.locator("img").count() == 0
        assert watched.errors == []
        assert all(url.startswith(("file:", "data:")) for url in watched.requests)
