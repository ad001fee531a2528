"""The timeline as a reader uses it, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, watched_page
from lab.app import click, drawn, hover, opened, state
from made import DEPENDS, DOZEN, Task, dozen, made

from npuscope import analysis
from npuscope.lab.runs import compare_document, report_document
from npuscope.trace import Trace

NASTY = '<script>alert("k")</script><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


def report(trace: Trace, name: str = "drawn") -> dict[str, object]:
    return report_document(name, analysis.explain(trace))


def test_a_reader_hovers_zooms_and_selects(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, report(dozen()))
        # the verdict stands beside the timeline
        assert page.locator("#verdict").inner_text().startswith("dependency-bound")
        # hovering names a slice, and says why the lane is idle beside it
        assert hover(page, 5, "AIC_0").startswith("q_proj\n10.00 µs on AIC_0")
        assert "qk could not start: rope was still running." in hover(page, 20, "AIC_0")
        # a click selects: times, task, and who waits for whom, drawn as arrows
        click(page, 30, "AIC_0")
        told = page.locator(".selection").inner_text()
        assert "10.000 µs" in told
        assert "Waited for (1)" in told
        assert page.locator(".ends.producers button").inner_text().startswith("rope,")
        assert page.evaluate("npuscope.shell.pane.views[0].arrows") == 2
        # and a producer leads on
        page.locator(".ends.producers button").click()
        assert state(page, "selection.kernel") == "rope"
        assert watched.errors == []
        assert [url for url in watched.requests if not url.startswith("file:")] == []


def test_names_from_a_trace_are_text(browser: Any, tmp_path: Path) -> None:
    tasks = [Task(1, NASTY, "AIC_0", 0, 10, 0, 11), Task(2, "</script>", "AIC_0", 20, 30, 18, 31)]
    with watched_page(browser) as watched:
        dialogs: list[str] = []
        watched.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page = opened(watched.page, tmp_path, report(made(tasks, [(1, 2)]), NASTY))
        assert NASTY in hover(page, 5, "AIC_0")
        click(page, 5, "AIC_0")
        page.get_by_role("tab", name="Report").click()
        assert page.locator("h1").inner_text() == NASTY
        assert page.locator("td", has_text=NASTY).count() > 0
        assert page.locator("#app img, #app script").count() == 0
        assert (dialogs, watched.errors) == ([], [])


def test_two_runs_share_one_time_axis(browser: Any, tmp_path: Path) -> None:
    # GIVEN the drawn run, and one that takes 200 µs
    longer = [*DOZEN, Task(13, "quant", "AIV_1", 103, 200, 102, 201)]
    found = analysis.compare(dozen(), made(longer, (*DEPENDS, (12, 13)), lanes=("AIC_0", "AIC_1", "AIV_0", "AIV_1")))
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, compare_document(("before", "after"), found))
        # THEN both show 0 to 200 µs, one below the other, a moment at the same place
        assert state(page, "window") == [0, 200_000]
        assert page.evaluate("npuscope.shell.pane.views.map(v => v.x(100000))[0]") == page.evaluate(
            "npuscope.shell.pane.views.map(v => v.x(100000))[1]"
        )
        assert hover(page, 150, "AIV_1", view=1).startswith("quant")
        page.get_by_role("tab", name="Compare").click()
        drawn(page)
        assert "work moved onto or off the path" in page.locator("#panel").inner_text()
        assert watched.errors == []
