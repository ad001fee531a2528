"""The kernels panel: sorted, with the distribution of run times, core by core; the same numbers as Python's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, watched_page
from made import Task, made

from npuscope import explain as analysis
from npuscope.lab.runs import report_document
from tests.lab.app import opened, state


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


def run() -> dict[str, object]:
    """k runs 10, 20 and 30 µs on one core and 100 µs on another; other runs once."""
    tasks = [
        Task(1, "k", "AIC_0", 0, 10, 0, 11), Task(2, "k", "AIC_0", 20, 40, 19, 41),
        Task(3, "k", "AIC_0", 50, 80, 49, 81), Task(4, "k", "AIC_1", 0, 100, 0, 101),
        Task(5, "other", "AIC_1", 110, 115, 109, 116),
    ]  # fmt: skip
    return report_document("run", analysis.explain(made(tasks, [])))


def test_kernels_sort_and_show_how_their_times_spread(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport={"width": 1400, "height": 900}) as watched:
        page = opened(watched.page, tmp_path, run(), "panel=kernels")
        rows = page.locator(".kernels tbody tr")
        assert rows.first.inner_text().startswith("k\t")  # most core time first
        page.locator(".kernels th", has_text="kernel").click()
        page.locator(".kernels th", has_text="kernel").click()
        assert rows.first.inner_text().startswith("other")
        page.locator(".kernels tbody tr", has_text="k").last.click()
        assert state(page, "selection") == {"kind": "kernel", "kernel": "k"}
        text = page.locator(".kernel-detail figcaption").first.inner_text()
        assert text == "k: 4 runs, 10 µs to 100 µs, median 30 µs"
        cores = page.locator(".core").all_inner_texts()
        assert [text.split("\n") for text in cores] == [["AIC_0", "3 × 20 µs"], ["AIC_1", "1 × 100 µs"]]
        # a bar tells how many
        page.locator(".kernel-detail .drawn rect").first.hover()
        assert "slice" in page.locator(".tip").inner_text()
        assert watched.errors == []
