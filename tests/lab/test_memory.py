"""The memory panel in a real browser: the map of a function, hover and keys, small and dark, names that are markup."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, watched_page

from npuscope.answer.checks import fits
from npuscope.answer.request import Request
from npuscope.lab.program_runs import memory_page
from npuscope.lower.chip import chip_to_lower_for
from tests.lab.app import opened as drawn_app
from tests.lab.test_source import page_of
from tests.report.memory_programs import written

CHIP = chip_to_lower_for("910b1")
NASTY = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


def made(folder: Path, **constants: Any) -> str:
    path = written(folder / "layer.py", **constants)
    return memory_page(str(path), CHIP, fits(Request(str(path))))


def opened(page: Any, folder: Path, text: str, chosen: str = "") -> Any:
    (folder / "page.html").write_text(text)
    page.goto((folder / "page.html").as_uri())
    page.wait_for_selector("html[data-ready]")
    if chosen:
        page.locator("#function").select_option(chosen)
    page.wait_for_selector(".map svg")
    return page


def test_a_reader_finds_what_fills_a_memory(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, made(tmp_path, tk=512, tn=512))
        # what does not fit is said first, and its function is the one that is shown
        assert page.locator(".verdict").inner_text() == "layer: 3 functions, 1 memory is too small"
        assert "gate_aic Mat buffer usage 1081344 > 524288" in page.locator(".errors").inner_text()
        assert page.locator("#function").input_value() == "gate_aic"
        assert page.locator("tbody tr").first.inner_text().startswith("gate_aic")
        # the map: two weights side by side, the second beyond the limit
        mat = page.locator(".map").first
        assert mat.locator("rect.beyond").count() == 1
        assert mat.locator("g.over").count() >= 1
        over = mat.locator("g.over", has_text="w").first
        over.hover()
        tip = page.locator(".tip").inner_text()
        assert tip.startswith("w [512, 512] BF16\n524,288 B at ")
        assert "made at layer.py:17" in tip
        assert "acc = pl.matmul_acc(acc, x[:, k : k + TK], w[k : k + TK, n : n + TN])" in tip
        assert "in flight, 2 copies" in tip
        assert "ends beyond the 524,288 B there are" in tip
        page.mouse.move(0, 0)
        assert page.locator(".tip").is_hidden()
        # another function by the selector, and by a row of the table
        page.locator("#function").select_option("norm")
        page.locator("#chosen h2", has_text="Vec of the vector core: 16,384 of 188,416 B").wait_for()
        page.locator("tbody tr", has_text="gate_aiv").first.click()
        assert page.locator("#function").input_value() == "gate_aiv"
        assert watched.errors == []
        assert [url for url in watched.requests if not url.startswith("file:")] == []


def test_tiles_lie_where_the_plan_puts_them(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, made(tmp_path), "gate_aic")
        wrong = page.evaluate(
            """() => npuscope.shell.mounted.made.maps
                .flatMap(map => map.shapes.filter(([group]) => group.dataset.storage !== undefined)
                .map(([group], n) => [group.querySelector("rect"), map.space.tiles[n], map])
                .filter(([rect, tile, map]) => Math.abs(rect.y.baseVal.value - map.y(tile.address + tile.bytes)) > 0.01
                  || Math.abs(rect.x.baseVal.value - map.x(tile.first)) > 0.01)
                .map(([, tile]) => tile.name))"""
        )
        assert wrong == []
        # drawn rectangles that are needed at the same time never lie on one another
        for data in page.evaluate("npuscope.shell.mounted.made.maps.map(map => map.space.tiles)"):
            for n, one in enumerate(data):
                for other in data[n + 1 :]:
                    if one["first"] <= other["last"] and other["first"] <= one["last"]:
                        below, above = sorted((one, other), key=lambda tile: tile["address"])
                        assert below["address"] + below["bytes"] <= above["address"] or one["copies"] > 1


def test_the_ring_is_hatched_at_the_head(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, made(tmp_path), "gate_aiv")
        ring = page.locator(".map g.ring")
        assert ring.locator("> rect").get_attribute("fill") == "url(#hatch)"
        ring.hover()
        assert "ring C2V, 2 slots of 16 KiB" in page.locator(".tip").inner_text()


def test_keys_go_from_tile_to_tile(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport={"width": 900, "height": 400}) as watched:
        page = opened(watched.page, tmp_path, made(tmp_path), "gate_aic")
        assert page.locator(".map").first.locator("g[tabindex='0']").count() == 1  # one stop per map
        page.locator(".map g[tabindex='0']").first.focus()
        first = page.locator(".tip").inner_text()
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(50)  # the page scrolls to it
        assert page.locator(".tip").is_visible()
        assert page.locator(".tip").inner_text() != first
        label = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert label.replace(";", "").split() == page.locator(".tip").inner_text().split()
        page.keyboard.press("ArrowLeft")
        assert page.locator(".tip").inner_text() == first
        page.keyboard.press("Escape")
        assert page.locator(".tip").is_hidden()


def test_a_small_screen_has_no_sideways_scroll(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport={"width": 360, "height": 700}) as watched:
        page = opened(watched.page, tmp_path, made(tmp_path, tk=512, tn=512))
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.locator(".map svg").first.bounding_box()["width"] <= 360


def test_light_and_dark(browser: Any, tmp_path: Path) -> None:
    text, grounds = made(tmp_path), []
    for scheme in ("light", "dark"):
        with watched_page(browser, color_scheme=scheme) as watched:
            page = opened(watched.page, tmp_path, text)
            grounds.append(page.evaluate("getComputedStyle(document.querySelector('.map .free')).fill"))
            page.get_by_label("Switch between light and dark").click()
            grounds.append(page.evaluate("getComputedStyle(document.querySelector('.map .free')).fill"))
    assert grounds[0] == grounds[3] != grounds[1] == grounds[2]


def test_zoom_to_what_is_used(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, made(tmp_path), "gate_aic")
        left = "document.querySelectorAll('.map')[1].querySelectorAll('g.tile-box rect')"
        heights = f"[...{left}].map(rect => rect.height.baseVal.value)"
        before = page.evaluate(heights)
        page.get_by_label("Zoom Left to what is used").check()
        assert min(page.evaluate(heights)) > 2 * max(before)


def test_source_that_is_markup_is_text(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, made(tmp_path, comment=NASTY), "gate_aic")
        page.locator(".map").first.locator("g.tile-box").last.hover()
        assert NASTY in page.locator(".tip").inner_text()
        assert page.locator("#app img, #app script").count() == 0
        assert watched.errors == []


def test_the_page_is_offline_and_does_not_tell_where_the_file_lies(tmp_path: Path) -> None:
    text = made(tmp_path)
    assert "default-src 'none'" in text
    assert str(tmp_path) not in text
    for outside in ("http://", "https://", "src=", "@import", "url(h"):
        assert outside not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")
    data = json.loads(text.split('id="document">')[1].split("</script>")[0])
    functions = data["shared"]["memory"]["programs"][0]["functions"]
    assert [function["name"] for function in functions] == ["gate_aic", "gate_aiv", "norm"]


def test_a_tile_and_the_line_that_makes_it_lead_to_each_other(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport={"width": 1400, "height": 900}) as watched:
        page = drawn_app(watched.page, tmp_path, page_of(tmp_path), "panel=memory")
        page.locator("#function").select_option("gate_aic")
        page.locator(".map").first.locator("g.tile-box", has_text="w").first.click()
        line = page.evaluate("npuscope.store.state.selection")
        assert line["kind"] == "line"
        assert "matmul" in (tmp_path / "layer.py").read_text().splitlines()[line["line"] - 1]
        assert line["bodies"], "the slices of the line are marked"
        assert page.locator(".map g.of-line").count() >= 1
        # from a line of another function to its tiles
        rows = (tmp_path / "layer.py").read_text().splitlines()
        number = next(n for n, text in enumerate(rows, 1) if "rows = out[:, 0:256]" in text)
        page.evaluate(
            f"npuscope.store.set({{ selection: {{ kind: 'line', file: 'layer.py', line: {number}, bodies: [] }} }})"
        )
        assert page.locator("#function").input_value() == "norm"
        assert page.locator(".map g.of-line").count() >= 1
        assert watched.errors == []
