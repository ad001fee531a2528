"""Inside a block: the pipes of a selected slice's block, who waited for whom, and the way back to the line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import chromium, watched_page

from npuscope.lab.payload import inside as module
from npuscope.lab.payload.inside import inside
from npuscope.time.per_line import kinds_of
from tests.lab.app import drawn, opened, state
from tests.lab.test_source import layer, page_of

WIDE = {"width": 1400, "height": 900}
BODY = "npuscope.shell.mounted.made"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


def test_a_kind_of_block_has_what_its_trace_has(tmp_path: Path) -> None:
    simulated = layer(tmp_path)
    found: Any = inside(simulated)
    kinds = list(kinds_of(simulated))
    assert [body["body"] for body in found["bodies"]] == [kind.body for kind in kinds]
    assert [body["kernel"] for body in found["bodies"]] == ["gate"] * (len(kinds) - 1) + ["norm"]
    for body, kind in zip(found["bodies"], kinds, strict=True):
        # what decides adds up to the block
        assert sum(body["waits"].values()) == pytest.approx(kind.timing.duration)
        # an instruction names the one whose end let it start, which is no later
        late = kind.lane.because >= 0
        before = kind.lane.because[late]
        assert np.all(kind.lane.end[before] <= kind.lane.start[late] + 1e-9)
        assert len(body["slots"]) > kind.lane.slot.max()


def test_what_is_too_large_is_left_out_and_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated = layer(tmp_path)
    whole: Any = inside(simulated)
    monkeypatch.setattr(module, "MOST_OF_ONE", 60)
    found: Any = inside(simulated)
    gone = [(body["body"], body["kernel"], len(body["names"]) > 0) for body in whole["bodies"][:2]]
    assert [(one["body"], one["kernel"], one["instructions"] > 60) for one in found["left_out"]] == gone
    # the server can still be asked for one of them
    one: Any = inside(simulated, only=whole["bodies"][0]["body"])
    assert one["bodies"] == whole["bodies"][:1]


def test_from_a_slice_to_its_pipes_to_a_line(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport=WIDE) as watched:
        page = opened(watched.page, tmp_path, page_of(tmp_path), "panel=inside")
        select = (
            "kernel => { const v = npuscope.shell.pane.views[0], number = v.timeline.kernels.indexOf(kernel);"
            "npuscope.store.set({ selection: v.model.selection([...v.timeline.slices.kernel].indexOf(number)) }); }"
        )
        page.evaluate(select, "norm")
        assert "of norm:" in page.locator(".inside .sums").inner_text()
        page.evaluate(select, "gate")
        drawn(page)
        assert "of gate:" in page.locator(".inside .sums").inner_text()
        assert "AIC M" in page.locator(".decides").inner_text()
        # keys go from instruction to instruction, upwards to what it waited for
        page.locator(".inside canvas").focus()
        for _ in range(4):
            page.keyboard.press("ArrowRight")
        text = page.locator(".instruction").inner_text()
        assert "not sooner, because" in text.lower()
        page.locator(".instruction button.source").click()
        assert state(page, "panel") == "source"
        assert state(page, "selection.kind") == "line"
        assert page.locator("tr.chosen code").count() == 1
        assert watched.errors == []


def test_a_page_says_why_a_kind_of_block_is_not_in_it(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_OF_ONE", 60)
    with watched_page(browser, viewport=WIDE) as watched:
        page = opened(watched.page, tmp_path, page_of(tmp_path), "panel=inside")
        assert "of norm:" in page.locator(".inside .sums").inner_text()  # which is there
        page.locator("#body").select_option("1")
        why = page.locator("#not-here").inner_text()
        assert why.startswith("This kind of block of gate is not in this page: it has ")
        assert "a page takes at most 60 of one kind. `npuscope lab` with the program shows it." in why
        page.locator("#body").select_option("2")
        assert page.locator("#not-here").inner_text() == ""
        assert watched.errors == []


def test_zoom_and_hover(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport=WIDE) as watched:
        page = opened(watched.page, tmp_path, page_of(tmp_path), "panel=inside")
        canvas = page.locator(".inside canvas")
        canvas.focus()
        box = canvas.bounding_box()  # focus brings it into sight
        page.mouse.move(box["x"] + 200, box["y"] + 40)
        for _ in range(3):
            page.keyboard.press("w")
        drawn(page)
        tips = []
        for x in range(90, int(box["width"]), 6):
            page.mouse.move(box["x"] + x, box["y"] + 22 + 17)
            tip = page.locator(".tip:not([hidden])")
            if tip.count():
                tips.append(tip.inner_text())
        assert any("Not sooner:" in tip for tip in tips)
        assert watched.errors == []
