"""From a finding to its fix in the lab: tried, drawn beside the run, applied to the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import chromium, watched_page
from lab_server import lab

pytest.importorskip("libcst")

from tests.editor.test_language_server import GEMM
from tests.lab.app import drawn, until

START, LOOP = GEMM.index("        a0 ="), GEMM.index("            left =")
SLOW = (  # a vector core adds the products up, from zeros
    GEMM[:START]
    + "        acc = pl.full([M, TN], dtype=pl.FP32, value=0.0)\n        for k in pl.range(K // TK):\n"
    + GEMM[LOOP:].replace(
        "acc = pl.matmul_acc(acc, left, right)", "acc = pl.add(acc, pl.matmul(left, right))  # the sum"
    )
)


def test_a_fix_is_tried_drawn_and_applied(tmp_path: Path) -> None:
    file = tmp_path / "gemm.py"
    file.write_text(SLOW)
    with lab(file) as running, chromium() as browser, watched_page(browser) as watched:
        page = watched.page
        page.goto(f"{running.url}#panel=fixes")
        until(page, "globalThis.npuscope?.store.state.runs.some(run => run.panels.knobs !== undefined)")
        drawn(page)
        # WHEN the fixes are tried
        page.get_by_role("button", name="try the fixes of this program").click()
        fix = page.locator("section.fix").first
        fix.wait_for(timeout=100_000)
        # THEN the best stands first, with its gain and its lines, and nothing is written
        assert "golden holds" in fix.inner_text()
        assert "acc = pl.matmul_acc(acc, left, right)  # the sum" in fix.locator("tr.added").all_inner_texts()[-1]
        assert file.read_text() == SLOW
        # AND the findings and causes of the run are worth what their fixes gave
        until(page, "npuscope.store.run().panels.source.findings.some(one => one.tried === 'tried')")
        saved = page.evaluate(
            "npuscope.store.run().panels.source.findings.filter(one => one.tried === 'tried').map(one => one.worth_ns)"
        )
        assert max(saved) > 0
        page.evaluate("npuscope.store.set({panel: 'source'})")
        assert "tried" in page.locator(".finding-list").text_content()
        page.evaluate("npuscope.store.set({panel: 'fixes'})")
        # WHEN it is drawn, it is a run of its own, faster, beside the one that it mends
        fix.get_by_role("button", name="draw it beside this run").click()
        until(page, "npuscope.store.state.run !== '1' && npuscope.store.state.beside === '1'")
        before, after = page.evaluate(
            "['1', npuscope.store.state.run].map(id => npuscope.store.state.runs.find(run => run.id === id).wall.value)"
        )
        assert after < before
        assert file.read_text() == SLOW
        # WHEN it is applied, the file holds it and the lab follows the save
        page.evaluate("npuscope.store.set({run: '1', beside: null, panel: 'fixes'})")
        page.locator("section.fix").first.get_by_role("button", name="apply to the file").click()
        until(page, "npuscope.store.state.versions.filter(one => one.saved && one.has_run).length === 2")
        assert "acc = pl.matmul_acc(acc, left, right)  # the sum" in file.read_text()
        # AND a fix of a text that is gone is refused, with the file as it is
        mended = file.read_text() + "# and mine\n"
        file.write_text(mended)
        # the page follows that save when its run arrives, so only after it the older run stays chosen
        until(page, "npuscope.store.state.versions.filter(one => one.saved && one.has_run).length === 3")
        until(page, "npuscope.store.state.run === npuscope.store.state.versions.at(-1).id")
        page.evaluate("npuscope.store.set({run: '1', beside: null, panel: 'fixes'})")
        page.locator("section.fix").first.get_by_role("button", name="apply to the file").click()
        until(page, "[...document.querySelectorAll('p[role=status]')].some(one => one.textContent.includes('gemm.py'))")
        assert file.read_text() == mended
        watched.errors[:] = [one for one in watched.errors if "409" not in one and "400" not in one]
