"""The app in a browser, as tests use it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from npuscope.lab.document import page as page_of

TRIES = 1500  # half a minute and more, for what never comes


def opened(page: Any, folder: Path, document: dict[str, object], link: str = "") -> Any:
    """A document in the app, drawn."""
    file = folder / "page.html"
    file.write_text(page_of(document))
    page.goto(f"{file.as_uri()}{'#' if link else ''}{link}")
    page.wait_for_selector("html[data-ready]")
    drawn(page)
    return page


def drawn(page: Any) -> None:
    """Waits until every view has drawn what the store says."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def point(page: Any, moment_us: float, lane: str, view: int = 0) -> tuple[float, float]:
    """Where a moment of a lane is on the screen."""
    x, y = page.evaluate(
        "([moment, lane, n]) => { const v = npuscope.shell.pane.views[n], box = v.canvas.getBoundingClientRect();"
        "const row = v.model.rowOfLane[v.timeline.lanes.findIndex(one => one.name === lane)];"
        "v.reveal(row); return [box.left + v.x(moment * 1000), box.top + v.rowY(row) + v.rowHeight(row) / 2]; }",
        [moment_us, lane, view],
    )
    return float(x), float(y)


def hover(page: Any, moment_us: float, lane: str, view: int = 0) -> str:
    """Move onto a moment of a lane; the tooltip's text."""
    page.mouse.move(*point(page, moment_us, lane, view))
    tip = page.locator(".tip:not([hidden])")
    return str(tip.inner_text()) if tip.count() else ""


def click(page: Any, moment_us: float, lane: str, view: int = 0) -> None:
    page.mouse.click(*point(page, moment_us, lane, view))
    drawn(page)


def until(page: Any, condition: str) -> None:
    """Waits for an expression to hold; the page's policy forbids playwright's own way, which evaluates text."""
    for _ in range(TRIES):
        try:
            if page.evaluate(condition):
                return
        except Exception as error:
            if "context was destroyed" not in str(error):  # the page is being made anew with its first run
                raise
        page.wait_for_timeout(20)
    raise AssertionError(f"never came true: {condition}")


def state(page: Any, key: str) -> Any:
    return page.evaluate(f"npuscope.store.state.{key}")
