"""The source panel: lines with their time, findings beside them, and the way from a line to its slices and back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import chromium, watched_page

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.explain import explain
from npuscope.lab.payload.files import file_names
from npuscope.lab.payload.source import source
from npuscope.lab.program_runs import prediction_document
from npuscope.time.per_line import line_times
from npuscope.time.run import Simulated
from tests.lab.app import drawn, opened, state
from tests.report.memory_programs import written

NASTY = "</script><img src=x onerror=alert(1)>"
WIDE = {"width": 1400, "height": 900}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


def predicted(folder: Path, **constants: Any) -> Prediction:
    return Prediction(Request(str(written(folder / "layer.py", **constants))))


def layer(folder: Path, **constants: Any) -> Simulated:
    return predicted(folder, **constants).simulated


def page_of(folder: Path, **constants: Any) -> dict[str, object]:
    return prediction_document("layer.py", predicted(folder, **constants))


def test_lines_of_the_page_add_up_to_what_was_simulated(tmp_path: Path) -> None:
    simulated = layer(tmp_path)
    explained = explain(simulated.trace)
    found: Any = source(simulated, explained)
    times = line_times(simulated, explained)
    assert sum(line["core_ns"] for line in found["lines"]) == pytest.approx(times.core_ns)
    assert sum(line["core_share"] for line in found["lines"]) == pytest.approx(1)
    assert sum(line["path_share"] for line in found["lines"]) == pytest.approx(1)
    text = (tmp_path / "layer.py").read_text().splitlines()
    assert found["files"] == [{"name": "layer.py", "text": text, "left_out": 0}]
    # the loop over K takes most, and its line belongs to the blocks of gate alone
    hottest = max(found["lines"], key=lambda line: line["core_ns"])
    assert text[hottest["line"] - 1].strip().startswith("acc = pl.matmul_acc(")
    gate = {int(n) for n, t in enumerate(simulated.prepared.program.recording.tasks) if t.kernel == "gate"}
    job = simulated.prepared.job
    assert {int(job.block_class[b]) for b in range(len(job.task_of)) if int(job.task_of[b]) in gate} == set(
        hottest["bodies"]
    )


def test_files_are_called_as_short_as_tells_them_apart() -> None:
    assert file_names(["/a/b/layer.py", "/a/b/parts.py"]) == {"/a/b/layer.py": "layer.py", "/a/b/parts.py": "parts.py"}
    assert list(file_names(["/a/x/m.py", "/a/y/m.py"]).values()) == ["x/m.py", "y/m.py"]


def test_a_click_on_a_line_marks_its_slices_and_a_slice_its_lines(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport=WIDE) as watched:
        page = opened(watched.page, tmp_path, page_of(tmp_path), "panel=source")
        line = page.locator("tr[data-line]", has_text="acc = pl.matmul_acc(")
        line.locator("td.line").click()
        drawn(page)
        number = int(line.get_attribute("data-line"))
        assert state(page, "selection.kind") == "line"
        assert state(page, "selection.line") == number
        assert "chosen" in line.get_attribute("class")
        # the timeline marks the slices of gate, and no other
        marked = page.evaluate(
            "() => { const { model } = npuscope.shell.pane.views[0], is = model.marks(npuscope.store.state.selection);"
            "const found = [...model.slices.kernel].filter((_, i) => is(i)).map(k => model.timeline.kernels[k]);"
            "return [...new Set(found)]; }"
        )
        assert marked == ["gate"]
        # from a slice of norm to the lines of norm
        page.evaluate(
            "() => { const v = npuscope.shell.pane.views[0], s = v.timeline.slices;"
            "const i = [...s.kernel].findIndex(k => v.timeline.kernels[k] === 'norm');"
            "npuscope.store.set({ selection: v.model.selection(i) }); }"
        )
        texts = page.locator("tr.of-slice td.text code").all_inner_texts()
        assert any("pl.add(rows, rows)" in text for text in texts)
        assert not any("matmul_acc" in text for text in texts)
        # a second click on a line selects nothing
        line.locator("td.line").click()
        line.locator("td.line").click()
        assert state(page, "selection") is None
        assert watched.errors == []


def test_findings_stand_beside_their_line_with_their_fix(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport=WIDE) as watched:
        data: Any = page_of(tmp_path)
        findings = data["runs"][0]["panels"]["source"]["findings"]
        assert findings, "the program is one that a check says something about"
        page = opened(watched.page, tmp_path, data, "panel=source")
        first = findings[0]
        chip = page.locator(f"tr[data-line='{first['line']}'] .chip").first
        assert first["id"] in chip.inner_text()
        details = page.locator(f"tr[data-of='{first['line']}']")
        assert details.is_hidden()
        chip.click()
        assert first["message"] in details.inner_text()
        assert f"Remedy: {first['remedy']}" in details.inner_text()
        assert chip.get_attribute("aria-expanded") == "true"


def test_the_slowest_lines_stand_beside_every_panel_and_lead_to_the_source(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport=WIDE) as watched:
        data: Any = page_of(tmp_path)
        lines = data["runs"][0]["panels"]["source"]["lines"]
        slowest = max(lines, key=lambda line: line["core_ns"])
        page = opened(watched.page, tmp_path, data)
        first = page.locator(".slow-line").first
        assert f"{slowest['file']}:{slowest['line']}" in first.inner_text()
        first.click()
        drawn(page)
        assert (state(page, "panel"), state(page, "selection.line")) == ("source", slowest["line"])
        assert page.locator("tr.chosen").get_attribute("data-line") == str(slowest["line"])
        # AND the chip's limits are a panel of programs: a point per kernel that computes
        page.locator("#tab-roofline").click()
        page.locator("circle.point").first.wait_for()
        assert watched.errors == []


def test_keys_go_from_line_to_line_and_a_small_screen_shows_time_and_text(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport={"width": 480, "height": 800}) as watched:
        page = opened(watched.page, tmp_path, page_of(tmp_path), "panel=source")
        assert page.evaluate("document.documentElement.scrollWidth") <= 480
        page.locator("table.code").focus()
        for _ in range(3):
            page.keyboard.press("ArrowDown")
        assert state(page, "selection.line") == 3
        assert page.locator("table.code th.other").first.is_hidden()


def test_source_that_is_markup_is_text(browser: Any, tmp_path: Path) -> None:
    with watched_page(browser, viewport=WIDE) as watched:
        page = opened(watched.page, tmp_path, page_of(tmp_path, comment=NASTY), "panel=source")
        assert NASTY in page.locator("table.code").inner_text()
        assert page.locator("#app img, #app script").count() == 0
        assert watched.errors == []


def test_the_page_does_not_tell_where_the_file_lies(tmp_path: Path) -> None:
    from npuscope.lab.document import as_json

    assert str(tmp_path).encode() not in as_json(page_of(tmp_path))
