"""A headless Chromium for tests of pages, which notes every complaint and every request."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

SWITCHES = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
PATIENCE_MS = 120_000  # for what hangs: a busy machine is slow
LOADED_OR_FAILED = "globalThis.failures?.length > 0 || (globalThis.app?.trace && !app.isLoadingTrace)"  # Perfetto's UI


class Watched:
    """A page, what its console complained of, and the addresses it asked for."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.errors: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.context.on("request", lambda request: self.requests.append(request.url))


@contextmanager
def chromium() -> Iterator[Any]:
    """Debian's Chromium, or a skip with a reason."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: pip install -e '.[dev]'"
    )
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("chromium is not installed: apt-get install chromium")
    with (
        playwright.sync_playwright() as driver,
        driver.chromium.launch(executable_path=path, args=SWITCHES) as browser,
    ):
        yield browser


@contextmanager
def watched_page(browser: Any, **options: Any) -> Iterator[Watched]:
    """A page of its own."""
    with browser.new_context(service_workers="block", **options) as context:
        context.set_default_timeout(PATIENCE_MS)
        yield Watched(context.new_page())
