"""The timeline as a reader uses it, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from browser import chromium, watched_page
from made import DEPENDS, DOZEN, Task, dozen, made
from planted_ranks import US, Planted, log_of

import npuscope
from npuscope import explain as analysis
from npuscope.explain.diagnosis import Cause, Diagnosis, Gain, Span
from npuscope.lab.document import document
from npuscope.lab.payload import timeline as payload
from npuscope.lab.payload.all_ranks import all_ranks
from npuscope.lab.runs import compare_document, ranks_document, report_document, run_of
from npuscope.report.captures import step_parts
from npuscope.trace import Meta, Trace
from npuscope.trace.readers.root import merge
from tests.lab.app import click, drawn, hover, opened, point, state, until

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
        verdict = analysis.explain(dozen()).as_dict()["verdict"]
        assert page.locator("#verdict .sentence").inner_text() == str(verdict).replace("`", "")
        # hovering names a slice, and says why the lane is idle beside it
        assert hover(page, 5, "AIC_0").startswith("q_proj\n10 µs on AIC_0")
        assert "qk could not start: rope was still running." in hover(page, 20, "AIC_0")
        # a click selects: times, task, and who waits for whom, drawn as arrows
        click(page, 30, "AIC_0")
        text = page.locator(".selection").inner_text()
        assert "10.000 µs" in text
        assert "Waited for (1)" in text
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

        def dismissed(dialog: Any) -> None:
            dialogs.append(dialog.message)
            dialog.dismiss()

        watched.page.on("dialog", dismissed)
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
        assert hover(page, 150, "AIV_1").startswith("quant")  # the newer one is what is shown
        page.get_by_role("tab", name="Compare").click()
        drawn(page)
        assert "Where the gap comes from" in page.locator("#panel").inner_text()
        assert watched.errors == []


def test_range_totals_are_what_python_adds_up(browser: Any, tmp_path: Path) -> None:
    # GIVEN a range drawn with the mouse, from 12 to 62 µs, over slices that it cuts
    explained = analysis.explain(dozen())
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, report_document("drawn", explained))
        page.keyboard.down("Shift")
        page.mouse.move(*point(page, 12, "AIC_0"))
        page.mouse.down()
        page.mouse.move(*point(page, 40, "AIC_1"))
        page.mouse.move(*point(page, 62, "AIC_1"))
        page.mouse.up()
        page.keyboard.up("Shift")
        drawn(page)
        start, end = (round(state(page, f"selection.{name}")) for name in ("start", "end"))
        assert (start, end) == (pytest.approx(12_000, abs=200), pytest.approx(62_000, abs=200))

        def shown(which: str) -> dict[str, int]:
            rows = page.locator(f".totals.{which} tbody tr").all()
            return {
                row.locator("td").first.inner_text(): int(row.locator("[data-ns]").get_attribute("data-ns"))
                for row in rows
            }

        # THEN per kernel it says what an analysis of that window does
        inside = analysis.explain(dozen().window(start, end)).busy.kernels
        assert shown("kernels") == dict(inside.select("kernel", "core_ns").iter_rows())
        # and per reason the idle times of the whole run, clipped
        clipped = explained.bubbles.segments.with_columns(pl.col("start").clip(start), pl.col("end").clip(None, end))
        idle = clipped.filter(pl.col("end") > pl.col("start")).group_by(pl.col("reason").cast(pl.String)).agg(
            ns=(pl.col("end") - pl.col("start")).sum()
        )  # fmt: skip
        titles = {one["id"]: one["title"] for one in page.evaluate("npuscope.store.run().timeline.reasons")}
        assert shown("reasons") == {titles[reason]: ns for reason, ns in idle.iter_rows()}
        assert sum(shown("kernels").values()) + sum(shown("reasons").values()) == 4 * (end - start)


def test_search_counts_marks_and_goes_from_hit_to_hit(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, report(dozen()))
        found = page.locator("#found")
        page.keyboard.press("/")
        page.keyboard.type("PROJ")
        assert found.inner_text() == "3 found"
        page.keyboard.press("Enter")
        assert (found.inner_text(), state(page, "selection.kernel")) == ("1 of 3", "q_proj")
        page.keyboard.press("Enter")
        assert (found.inner_text(), state(page, "selection.kernel")) == ("2 of 3", "k_proj")
        page.keyboard.press("Enter")
        page.keyboard.press("Enter")
        assert found.inner_text() == "1 of 3"
        page.keyboard.press("Shift+Enter")
        assert (found.inner_text(), state(page, "selection.kernel")) == ("3 of 3", "out_proj")
        # what is no hit is dim
        drawn(page)
        dim, hit = (pixel(page, moment, "AIC_1") for moment in (35, 70))
        assert dim != hit
        page.keyboard.press("Escape")
        drawn(page)
        assert found.inner_text() == ""
        assert pixel(page, 35, "AIC_1") != dim


def pixel(page: Any, moment_us: float, lane: str) -> list[int]:
    """The colour that is drawn there, near the lower edge of the lane, where no letter is."""
    x, y = point(page, moment_us, lane)
    return [
        int(part)
        for part in page.evaluate(
            "([x, y]) => { const v = npuscope.shell.pane.views[0], box = v.canvas.getBoundingClientRect();"
            "return [...v.canvas.getContext('2d').getImageData(x - box.left, y - box.top + 9, 1, 1).data]; }",
            [x, y],
        )
    ]


def test_the_keyboard_does_everything_without_a_click(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, report(dozen()))
        press = page.keyboard.press
        press("w")
        assert state(page, "window") == [pytest.approx(15_000), pytest.approx(85_000)]
        press("a")
        assert state(page, "window")[0] == 0
        press("d")
        press("s")
        press("0")
        assert state(page, "window") == [0, 100_000]
        # arrows go from slice to slice and from lane to lane, p and c along the edges
        press("ArrowRight")
        first = state(page, "selection.kernel")
        press("ArrowRight")
        assert (first, state(page, "selection.kernel")) == ("sv", "up")
        press("p")
        assert state(page, "selection.kernel") == "gate"
        press("c")
        assert state(page, "selection.kernel") == "up"
        press("ArrowDown")
        assert state(page, "selection.kernel") == "out_proj"
        press("z")
        start, end = state(page, "window")
        assert start < 61_000 < 75_000 < end
        assert end - start == 28_000
        # a cause, a panel, the help sheet, and out again
        press("]")
        assert state(page, "selection.kind") == "cause"
        press("2")
        assert page.locator("[role=tab]").nth(1).get_attribute("aria-selected") == "true"
        press("?")
        assert page.get_by_role("dialog").is_visible()
        press("Escape")
        assert not page.get_by_role("dialog").is_visible()
        press("Escape")
        assert state(page, "selection") is None
        press("l")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        # in a field, letters are letters
        press("/")
        page.keyboard.type("was")
        assert state(page, "search") == "was"
        assert watched.errors == []


def test_a_link_shows_what_i_see(browser: Any, tmp_path: Path) -> None:
    document = report(dozen())
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, document)
        page.evaluate("npuscope.store.set({ window: [20000, 60000] })")
        click(page, 41, "AIV_0")
        page.locator("label", has_text="critical path").click()
        page.get_by_role("tab", name="Report").click()
        until(page, "location.hash.includes('panel=overview')")
        address = page.evaluate("location.hash")
        keys = ("window", "selection", "panel", "shown", "search")
        seen = {key: state(page, key) for key in keys}
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, document, address.removeprefix("#"))
        assert {key: state(page, key) for key in keys} == seen
        assert seen["selection"]["kernel"] == "softmax"
        assert not seen["shown"]["path"]
        assert "softmax" in page.locator(".selection").inner_text()


def test_a_nonsense_link_shows_everything(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser) as watched:
        link = "run=9&beside=x&panel=none&window=7-3&select=slice.0.999&hide=everything&fold=AIC"
        page = opened(watched.page, tmp_path, report(dozen()), link)
        assert (state(page, "window"), state(page, "selection"), state(page, "beside")) == ([0, 100_000], None, None)
        assert watched.errors == []


def test_light_and_dark_differ_and_the_button_switches(browser: Any, tmp_path: Path) -> None:
    document, grounds, idle = report(dozen()), {}, {}
    for scheme in ("light", "dark"):
        with watched_page(browser, color_scheme=scheme) as watched:
            page = opened(watched.page, tmp_path, document)
            ground = "getComputedStyle(document.body).backgroundColor"
            grounds[scheme], idle[scheme] = page.evaluate(ground), pixel(page, 20, "AIC_0")
            page.get_by_label("Switch between light and dark").click()
            drawn(page)
            assert page.evaluate(ground) != grounds[scheme]
            assert pixel(page, 20, "AIC_0") != idle[scheme]
    assert grounds["light"] == "rgb(255, 255, 255)" != grounds["dark"]


def test_at_480_pixels_nothing_is_cut_off(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport={"width": 480, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, report(dozen(), "a_run_with_a_rather_long_name_of_its_own"))
        for tab in page.get_by_role("tab").all():
            tab.click()
            drawn(page)
            assert page.evaluate("document.documentElement.scrollWidth") == 480
        page.get_by_role("tab", name="Timeline").click()
        click(page, 30, "AIC_0")
        page.locator(".selection").scroll_into_view_if_needed()
        assert "qk" in page.locator(".selection").inner_text()


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


def test_a_frame_looks_at_pixels_not_at_slices(browser: Any, tmp_path: Path) -> None:
    """Ten slices to a pixel: looking at each would stutter (benchmarks/lab.py measures how long a frame takes)."""
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, report(big(100_800, 8)))
        page.evaluate(
            """() => {
                const model = npuscope.shell.pane.views[0].model, asked = { starts: 0 };
                globalThis.asked = asked;
                model.slices.start = new Proxy(model.slices.start, {
                    get(array, key) { asked.starts++; const value = array[key]; return typeof value === "function" ? value.bind(array) : value; },
                });
                npuscope.shell.pane.draw();
            }"""  # noqa: E501
        )
        drawn(page)
        assert 0 < page.evaluate("asked.starts") < 8 * 100
        # busy four fifths of the time, and nowhere idle for longer than a pixel: the lane is one band
        assert pixel(page, 20_000, "AIC_3")[3] == 255


def test_a_long_slice_right_after_a_short_one_is_drawn(browser: Any, tmp_path: Path) -> None:
    # GIVEN a slice of 2 ns and, 2 ns later, one of 50 µs: at this width both begin in one pixel
    tasks = [Task(1, "short", "AIC_0", 0, 0.002), Task(2, "long", "AIC_0", 0.004, 50), Task(3, "end", "AIC_1", 99, 100)]
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, report(made(tasks)))
        assert hover(page, 25, "AIC_0").startswith("long")
        assert pixel(page, 25, "AIC_0") == pixel(page, 40, "AIC_0")
        assert pixel(page, 25, "AIC_0") != pixel(page, 60, "AIC_0")


def test_lanes_fold_by_unit_and_unused_ones_are_folded_away(browser: Any, tmp_path: Path) -> None:
    trace = made(DOZEN, DEPENDS, lanes=("AIC_0", "AIC_1", "AIC_2", "AIV_0", "AIV_1"))
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, report(trace))
        names = "npuscope.shell.pane.views[0].tracks.map(track => track.name)"
        assert page.evaluate(names) == [
            "Cube cores (AIC): 2 of 3 lanes", "AIC_0", "AIC_1", "show 1 never used",
            "Vector cores (AIV): 2 lanes", "AIV_0", "AIV_1",
        ]  # fmt: skip
        # a click on the line shows them, one on a title folds its lanes
        for track in (3, 0):
            x, y = page.evaluate(
                "n => { const v = npuscope.shell.pane.views[0], box = v.canvas.getBoundingClientRect();"
                "return [box.left + 30, box.top + v.y(n) + 8]; }",
                track,
            )
            page.mouse.click(x, y)
            drawn(page)
            if track == 3:
                assert "AIC_2" in page.evaluate(names)
        assert page.evaluate(names) == [
            "Cube cores (AIC): 2 of 3 lanes", "Vector cores (AIV): 2 lanes", "AIV_0", "AIV_1"
        ]  # fmt: skip


def test_more_than_a_page_holds_is_drawn_together_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload, "MOST_SLICES", 5_000)
    explained = analysis.explain(big(40_320))
    made_smaller = payload._drawn(explained.work).table
    assert made_smaller.height <= 5_000
    assert made_smaller["drawn"].sum() == 40_320  # and none is lost
    text = f"40,320 slices are drawn as {made_smaller.height:,}: short neighbours are drawn together."
    assert payload.timeline(explained)["notes"] == [text]


def test_ranks_stand_in_a_table_and_a_row_shows_one(browser: Any, tmp_path: Path) -> None:
    tasks = [Task(n, f"gemm{n}", f"stream_{n}", 0, 10 * (n + 1)) for n in range(3)]
    trace = made(tasks)
    ranks = Trace.of(trace.slices, trace.lanes.with_columns(rank=pl.Series([0, 1, 2])), trace.meta)
    with watched_page(browser) as watched:
        found = analysis.explain_ranks(ranks)
        page = opened(watched.page, tmp_path, ranks_document("root", found))
        page.get_by_role("tab", name="Ranks").click()
        assert page.locator("#all").inner_text().startswith("rank 2: ")
        page.locator("#panel tbody tr", has_text="rank 2").first.click()
        drawn(page)
        assert state(page, "run") == "2"
        assert hover(page, 5, "stream_2").startswith("gemm2")


def test_ranks_lie_below_each_other_on_one_clock(browser: Any, tmp_path: Path) -> None:
    """Rank 1 comes 600 us late: its wait's arrow leads across ranks, the host's lanes are above, a third rank apart."""
    run = Planted([100, 700], [5, 900_000], kernels=("stage", "__builtin_all_reduce__fp32", "consume"))
    root = run.write(tmp_path / "root")
    for pid, late in ((11, 0), (12, 620)):
        (root / f"host.{pid}.log").write_text(log_of(pid, 10**9 + late * US, (650 - late) * US))
    alone = Planted([100, 200, 300], [5, 7, 9], kernels=("stage", "put", "consume"), one_sided=True).write(
        tmp_path / "x"
    )
    (alone / "rank2").rename(root / "rank2")
    found = analysis.explain_ranks(npuscope.read(root))
    with watched_page(browser) as watched:
        page = opened(watched.page, tmp_path, ranks_document("root", found, step_parts(str(root), "root")))
        assert state(page, "run") == "all"
        lanes = page.evaluate("npuscope.shell.pane.views[0].timeline.lanes.map(one => one.name)")
        assert lanes[:2] == ["0 · host 11", "1 · host 12"]
        assert [name for name in lanes if "AIV" in name] == [f"{r} · AIV_{n}" for r in (0, 1) for n in (24, 25, 26)]
        notes = page.evaluate("npuscope.shell.pane.views[0].timeline.notes")
        assert notes[0].startswith("Rank 2 is drawn apart")
        # the collective ends at one moment on both ranks; clicking the one that waits draws the arrow to the late one
        collective = "(n) => { const { start, dur, kernel } = npuscope.shell.pane.views[0].model.slices;"
        collective += "const k = npuscope.shell.pane.views[0].timeline.kernels.indexOf('__builtin_all_reduce__fp32');"
        collective += (
            "return [...kernel.keys()].filter(i => kernel[i] === k).map(i => [start[i], start[i] + dur[i]]); }"
        )
        early, late = page.evaluate(collective)
        assert early[1] == late[1]
        assert late[0] - early[0] == 600 * US
        click(page, (early[0] + 300 * US) / 1000, "0 · AIV_25")
        assert page.evaluate("npuscope.shell.pane.views[0].arrows") == 1
        page.get_by_role("tab", name="Step").click()
        page.locator("#panel svg").first.wait_for()
        assert "waiting for later ranks" in page.locator("#panel").inner_text()

        assert not watched.errors


@pytest.mark.full
def test_eight_ranks_of_a_hundred_thousand_slices_stay_smooth(browser: Any, tmp_path: Path) -> None:
    """A frame looks at pixels: what it asks for does not grow with the slices."""
    one = big(100_800, 12)
    parts = []
    for rank in range(8):
        meet = pl.DataFrame({"lane": [0], "start": [30_000_000], "dur": [1000 * (rank + 1)], "task": [500_000],
                             "kernel": ["all_reduce"], "kind": ["comm"]})  # fmt: skip
        slices = pl.concat([one.slices, Trace.of(meet, one.lanes, one.meta).slices], how="diagonal_relaxed")
        parts.append((rank, Trace.of(slices, one.lanes.with_columns(rank=pl.lit(rank)), one.meta)))
    found = analysis.explain_ranks(merge(parts))
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        together = all_ranks(found, "all")
        assert together is not None
        page = opened(watched.page, tmp_path, document("eight", [together]))
        assert page.evaluate("npuscope.shell.pane.views[0].model.slices.start.length") > 800_000
        asked = page.evaluate(
            """() => {
                const view = npuscope.shell.pane.views[0], model = view.model, counted = { starts: 0 };
                model.slices.start = new Proxy(model.slices.start, {
                    get(array, key) { counted.starts++; const value = array[key]; return typeof value === "function" ? value.bind(array) : value; },
                });
                npuscope.shell.pane.draw();
                return counted.starts;
            }"""  # noqa: E501
        )
        assert asked < 8 * 12 * 400


def test_a_cause_leads_to_its_stretches_and_a_stretch_back(browser: Any, tmp_path: Path) -> None:
    # GIVEN a run whose second cause shows on one lane from 50 to 60 µs, and again over all lanes at the end
    lane = 1  # AIC_1
    twice = (Span(50_000, 60_000, lane), Span(95_000, 99_000))
    causes = (
        Cause("dependency", "first `gate`", 0.6, ("it waits",), Gain(5_000, 1_000, 9_000), (Span(0, 30_000),)),
        Cause("dispatch", "second", 0.2, (), None, twice, "do it", "likely"),
    )
    run = run_of("drawn", analysis.explain(dozen(), diagnosis=Diagnosis(causes, 100_000, (0, 100_000))))
    with watched_page(browser, viewport={"width": 1366, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, document("drawn", [run]))
        first, second = page.locator(".causes > li[data-cause]").all()
        assert "worth 5 µs (1 µs to 9 µs)" in first.inner_text()
        assert first.locator("code").inner_text() == "gate"
        assert "do it" not in second.inner_text()  # one line, until it is chosen
        before = pixel(page, 55, "AIC_1")
        # WHEN the second is clicked, its stretches are in sight and marked
        second.locator("button.cause").click()
        drawn(page)
        start, end = state(page, "window")
        assert start < 50_000 < 99_000 < end
        assert "do it" in second.inner_text()
        assert pixel(page, 55, "AIC_1") != before
        # one after the other
        second.get_by_label("Next stretch").click()
        assert state(page, "window")[0] == pytest.approx(44_000)
        second.get_by_label("Next stretch").click()
        assert state(page, "window")[1] == pytest.approx(100_000)
        assert "2 of 2" in second.inner_text()
        # and an idle stretch of the timeline leads back to the first cause that has it
        page.keyboard.press("Escape")
        page.keyboard.press("0")
        drawn(page)
        click(page, 55, "AIC_1")
        assert second.locator("button.cause").get_attribute("aria-pressed") == "true"
        assert watched.errors == []
