"""Report pages as a reader uses them, in a real browser: hover, zoom, search, sort, switch to dark."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from browser import chromium, watched_page
from made import DEPENDS, DOZEN, Task, dozen, made

from npuscope import analysis
from npuscope.report import html
from npuscope.report.html import compare_page, ranks_page, report_page
from npuscope.trace import Meta, Trace

NASTY = '<script>alert("k")</script><img src=x onerror=alert(1)>'


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


def opened(page: Any, folder: Path, text: str) -> Any:
    (folder / "page.html").write_text(text)
    page.goto((folder / "page.html").as_uri())
    page.wait_for_selector("html[data-ready]")
    while not page.evaluate("npuscope.swimlanes.every(lane => lane.frame !== undefined)"):
        page.wait_for_timeout(20)
    return page


def hover(page: Any, moment_us: float, lane: int) -> str:
    """Move onto a moment of a lane; the tooltip's text."""
    x, y = page.evaluate(
        "([moment, lane]) => { const s = npuscope.swimlanes[0], box = s.canvas.getBoundingClientRect();"
        "return [box.left + s.x(moment * 1000), box.top + s.y(lane) + 4]; }",
        [moment_us, lane],
    )
    page.mouse.move(x, y)
    tip = page.locator(".tip:not([hidden])")
    return str(tip.inner_text()) if tip.count() else ""


def test_a_reader_hovers_zooms_and_searches(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, report_page("drawn", analysis.explain(dozen(), kernels="qk|softmax|sv")))
        # the verdict stands first
        assert page.locator("#verdict").inner_text().startswith("dependency-bound")
        # hovering names the slice, and the bubble beside it
        assert "q_proj\non AIC_0, from 0.000 µs for 10.000 µs\ntask 1" in hover(page, 5, 0)
        assert hover(page, 20, 0) == "dependency\nAIC_0 idle for 5.000 µs\nnext: qk\nwaited for: rope"
        assert hover(page, 16, 0).startswith("dispatch\n")
        # zooming by button, key and double click
        page.get_by_label("Zoom in").click()
        assert page.evaluate("npuscope.swimlanes[0].view") == [25_000, 75_000]
        page.locator("canvas").first.focus()
        page.keyboard.press("Escape")
        assert page.evaluate("npuscope.swimlanes[0].view") == [0, 100_000]
        hover(page, 85, 0)
        page.mouse.dblclick(*page.evaluate(
            "() => { const s = npuscope.swimlanes[0], box = s.canvas.getBoundingClientRect();"
            "return [box.left + s.x(85000), box.top + 28]; }"
        ))  # fmt: skip
        start, end = page.evaluate("npuscope.swimlanes[0].view")
        assert (start, end) == (72_000, 100_000)  # down, 81 to 95, at half the width, moved into the window
        # searching counts and colours, Enter goes there
        page.locator("#search").fill("SOFT")
        assert page.locator("#found").inner_text() == "1 slices"
        page.keyboard.press("Enter")
        start, end = page.evaluate("npuscope.swimlanes[0].view")
        assert start < 38_000 < 44_000 < end
        assert watched.errors == []
        assert [url for url in watched.requests if not url.startswith("file:")] == []


def test_tables_sort_and_a_row_finds_its_kernel(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, report_page("drawn", analysis.explain(dozen())))
        table = page.locator("section", has=page.get_by_role("heading", name="Kernels")).locator("table")
        names = lambda: table.locator("tbody tr td:first-child").all_inner_texts()  # noqa: E731
        assert names()[0] == "gate"  # the most core time first
        table.get_by_role("columnheader", name="kernel").click()
        assert names() == sorted(task.kernel for task in DOZEN)
        table.get_by_role("columnheader", name="kernel").click()
        assert names() == sorted((task.kernel for task in DOZEN), reverse=True)
        table.locator("tbody tr", has_text="softmax").click()
        assert page.locator("#search").input_value() == "softmax"


def test_names_from_a_trace_are_text(browser: Any, tmp_path: Path) -> None:
    tasks = [Task(1, NASTY, "AIC_0", 0, 10, 0, 11), Task(2, "</script>", "AIC_0", 20, 30, 18, 31)]
    with watched_page(browser) as watched:
        dialogs: list[str] = []
        watched.page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        page = opened(watched.page, tmp_path, report_page(NASTY, analysis.explain(made(tasks, [(1, 2)]), kernels=".")))
        assert NASTY in hover(page, 5, 0)
        assert page.locator("h1").inner_text() == NASTY
        assert page.locator("td", has_text=NASTY).count() > 0
        assert page.locator("main img, main script").count() == 0
        assert (dialogs, watched.errors) == ([], [])


def test_two_traces_share_one_time_axis(browser: Any, tmp_path: Path) -> None:
    # GIVEN the drawn run, and one that takes 200 µs
    longer = [*DOZEN, Task(13, "quant", "AIV_1", 103, 200, 102, 201)]
    found = analysis.compare(dozen(), made(longer, (*DEPENDS, (12, 13)), lanes=("AIC_0", "AIC_1", "AIV_0", "AIV_1")))
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, compare_page(("before", "after"), found))
        # THEN both show 0 to 200 µs, side by side
        assert page.evaluate("npuscope.swimlanes.map(lane => lane.view)") == [[0, 200_000]] * 2
        left, right = (lane.bounding_box() for lane in page.locator(".pair .lanes").all())
        assert left["x"] + left["width"] <= right["x"]
        assert left["width"] == pytest.approx(right["width"], abs=1)
        # and zooming one zooms the other
        page.evaluate("npuscope.swimlanes[1].setView(50000, 100000)")
        assert page.evaluate("npuscope.swimlanes[0].view") == [50_000, 100_000]
        assert "work moved onto or off the path" in page.locator("main").inner_text()
        assert watched.errors == []


def test_light_and_dark_differ_and_the_button_switches(browser: Any, tmp_path: Path) -> None:
    text = report_page("drawn", analysis.explain(dozen()))
    grounds = {}
    for scheme in ("light", "dark"):
        with watched_page(browser, color_scheme=scheme) as watched:
            page = opened(watched.page, tmp_path, text)
            ground = "getComputedStyle(document.body).backgroundColor"
            grounds[scheme] = page.evaluate(ground)
            page.get_by_label("Switch between light and dark").click()
            assert page.evaluate(ground) != grounds[scheme]
    assert grounds["light"] == "rgb(255, 255, 255)" != grounds["dark"]


def big(slices: int, lanes: int = 72) -> Trace:
    """Many short slices on many cores."""
    each = slices // lanes
    lane = np.repeat(np.arange(lanes), each)
    start = np.tile(np.arange(each) * 5_000, lanes) + lane * 40
    table = pl.DataFrame(
        {
            "lane": lane, "start": start, "dur": np.full(len(lane), 4_000), "task": np.arange(len(lane)),
            "kernel": pl.Series([f"kernel_{n}" for n in range(20)]).gather(np.arange(len(lane)) % 20),
            "kind": pl.Series(["task"]).new_from_index(0, len(lane)),
        }
    )  # fmt: skip
    places = pl.DataFrame({"lane": range(lanes), "name": [f"AIC_{n}" for n in range(lanes)], "unit": "AIC"})
    return Trace.of(table, places, Meta("made"))


def test_a_frame_draws_what_can_be_seen_and_no_more(browser: Any, tmp_path: Path) -> None:
    """Ten slices to a pixel: drawing all of them would stutter (benchmarks/page.py measures how long a frame takes)."""
    lanes = 8
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, report_page("big", analysis.explain(big(100_800, lanes))))
        drawn, width = page.evaluate(
            """async () => {
                const lane = npuscope.swimlanes[0], paper = CanvasRenderingContext2D.prototype, plain = paper.fillRect;
                let drawn = 0;
                paper.fillRect = function (...place) { drawn++; plain.apply(this, place); };
                lane.draw();
                await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
                paper.fillRect = plain;
                return [drawn, lane.width];
            }"""
        )
        # a pixel of a lane has at most a slice and an idle time
        assert lanes * 100 < drawn <= 2 * lanes * width
        assert watched.errors == []


def test_a_long_slice_right_after_a_short_one_is_drawn(browser: Any, tmp_path: Path) -> None:
    # GIVEN a slice of 2 ns and, 2 ns later, one of 50 µs: at this width both begin in one pixel
    tasks = [Task(1, "short", "AIC_0", 0, 0.002), Task(2, "long", "AIC_0", 0.004, 50), Task(3, "end", "AIC_1", 99, 100)]
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, report_page("drawn", analysis.explain(made(tasks))))
        # THEN the middle of the long one has a kernel's colour, as opaque as slices are
        alpha = page.evaluate(
            "() => { const s = npuscope.swimlanes[0], scale = devicePixelRatio;"
            "return s.canvas.getContext('2d').getImageData(s.x(25000) * scale, 26 * scale, 1, 1).data[3]; }"
        )
        assert alpha == 255


def test_modules_share_one_scope_without_a_clash() -> None:
    folder = Path(html.__file__).parent / "page"
    names = [
        name
        for module in html.MODULES
        for name in re.findall(
            r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)",
            (folder / f"{module}.js").read_text(),
            re.MULTILINE,
        )
    ]
    assert sorted(names) == sorted(set(names))


def test_more_than_a_page_draws_is_drawn_together_and_said() -> None:
    page = report_page("huge", analysis.explain(big(400_032)))
    data = json.loads(page.split('id="data">')[1].split("</script>")[0])
    assert any("drawn as" in note for note in data["sides"][0]["timeline"]["notes"])
    assert len(page) < 12_000_000


def test_a_page_asks_for_nothing_from_elsewhere() -> None:
    text = report_page("drawn", analysis.explain(dozen()))
    assert "default-src 'none'" in text
    for outside in ("http://", "https://", "src=", "@import", "url("):
        assert outside not in text.replace("http://www.w3.org/2000/svg", "").replace("http-equiv", "")


def test_ranks_stand_in_a_table_and_one_at_a_time_below(browser: Any, tmp_path: Path) -> None:
    tasks = [Task(n, f"gemm{n}", f"stream_{n}", 0, 10 * (n + 1)) for n in range(3)]
    trace = made(tasks)
    ranks = Trace.of(trace.slices, trace.lanes.with_columns(rank=pl.Series([0, 1, 2])), trace.meta)
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, ranks_page("root", analysis.explain_ranks(ranks)))
        assert page.locator("#all").inner_text().startswith("3 ranks, all core-bound")
        assert "rank 2" in page.locator("table").first.inner_text()
        assert "gemm0" in page.locator("#rank").inner_text()
        page.get_by_role("button", name="rank 2").click()
        assert "gemm2" in page.locator("#rank").inner_text()
        assert "gemm0" not in page.locator("#rank").inner_text()
        page.locator("#rank canvas").first.scroll_into_view_if_needed()
        assert "gemm2\non stream_2" in hover(page, 5, 0)
