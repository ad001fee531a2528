"""Two simulated programs compared: the gap, and the lines whose time changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from browser import chromium, watched_page

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.explain import explain
from npuscope.explain.comparison import compare_explained
from npuscope.lab.runs import compare_document
from tests.lab.app import opened
from tests.report.memory_programs import written


def test_a_change_is_told_by_its_lines(tmp_path: Path) -> None:
    # GIVEN the same program with smaller tiles, and so more tasks
    files = [written(tmp_path / name, tn=tn) for name, tn in (("fine.py", 64), ("coarse.py", 256))]
    fine, coarse = (Prediction(Request(str(file))).simulated for file in files)
    found = compare_explained(explain(fine.trace), explain(coarse.trace))
    data: Any = compare_document(("fine", "coarse"), found, (), (fine, coarse))
    # THEN the constant is the one line of source that differs
    (changed,) = data["shared"]["compare"]["source"]
    assert [(how, text) for _, _, how, text in changed["lines"] if how != " "] == [("-", "TN = 64"), ("+", "TN = 256")]
    with chromium() as browser, watched_page(browser, viewport={"width": 1400, "height": 900}) as watched:
        page = opened(watched.page, tmp_path, data, "panel=compare")
        assert page.locator("#gap").inner_text().startswith("A fine takes ")
        # the loop over K gains most, for it is run by fewer blocks
        lines = page.locator("section section", has_text="Lines whose time changed most").locator("tbody tr")
        assert "matmul_acc" in lines.first.inner_text()
        assert page.locator("figure .bar").count() >= 3  # from A over steps to B
        assert watched.errors == []
