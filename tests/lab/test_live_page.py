"""The lab in a real browser: edit a file and watch two windows follow, a broken program, a knob, a lost server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from browser import chromium, watched_page
from lab_server import lab

from tests.lab.app import state, until

PROGRAM = """import numpy as np
import npuscope.tile as pl

COLS, TILE = 256, 64


@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for block in pl.spmd(COLS // TILE, name_hint="copy"):
        tile = pl.slice(x, [64, TILE], [0, block * TILE])
        y = pl.assemble(y, pl.add(tile, tile), [0, block * TILE])
    return y


program(np.zeros((64, COLS), np.float32), np.zeros((64, COLS), np.float32))
"""


def save(file: Path, text: str) -> None:
    """As editors do, in one step: a half-written file would be a version of its own."""
    other = file.with_suffix(".new")
    other.write_text(text)
    other.replace(file)


def shown(page: Any, id: str) -> None:
    until(page, f"globalThis.npuscope?.store.state.run === '{id}'")


def test_a_person_edits_a_program_and_the_page_follows(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    with (
        chromium() as browser,
        watched_page(browser) as watched,
        watched_page(browser) as other,
        lab(file) as running,
    ):
        page = watched.page
        for one in (page, other.page):
            one.goto(running.url)
            one.wait_for_selector(".app")  # opened before the first run, the page waits for it and is made anew
            shown(one, "1")
        until(page, "npuscope.store.state.runs[0].panels.knobs !== undefined")
        # GIVEN a reader who has zoomed and chosen a slice
        page.evaluate("npuscope.shell.pane.choose(npuscope.shell.pane.views[0], 0, false)")
        page.evaluate("npuscope.store.set({ window: [1000, 5000] })")
        # WHEN the file is saved
        save(file, PROGRAM.replace("256, 64", "256, 32"))
        # THEN both windows show the new version, and the reader's place is kept
        for one in (page, other.page):
            shown(one, "2")
        assert state(page, "window") == [1000, 5000]
        assert state(page, "selection.kernel") == "copy"
        assert state(page, "selection.run") == "2"
        assert state(page, "runs.map(run => run.id)") == ["1", "2"]
        assert page.locator("header h1").inner_text() == "program.py"
        # AND the header is the answer: which save, how it compares with the one before, and what was edited
        assert page.locator(".standing").inner_text() == "save 2 of 2"
        assert re.fullmatch(r"[\d.]+x save 1 \([\d.]+ to [\d.]+\), .*\d+%.*", page.locator(".ratio").inner_text())
        assert "since save 1: TILE 64 → 32 (program.py:4)" in page.locator(".since").inner_text()
        # WHEN a reader goes back, THEN the page says that it is old; one that is opened now shows the newest
        page.get_by_label("Run", exact=True).select_option("1")
        assert page.locator(".standing").inner_text() == "save 1 of 2"
        other.page.reload()
        shown(other.page, "2")
        assert other.page.locator(".newest").count() == 0
        page.locator(".newest").click()
        assert state(page, "run") == "2"
        # WHEN it is broken, THEN the error stands at its line and the last run stays
        save(file, PROGRAM.replace("COLS, TILE", "1 / 0\nCOLS, TILE"))
        until(page, "document.querySelector('.trouble') !== null")
        text = page.locator(".trouble").inner_text()
        assert "save 3 does not run. program.py:4: ZeroDivisionError: division by zero." in text
        assert state(page, "run") == "2"
        # AND when it is mended the error goes
        save(file, PROGRAM)
        shown(page, "4")
        until(page, "document.querySelector('.trouble') === null")
        # WHEN a knob is turned in one window, THEN that window shows the variant and the other lists it
        until(page, "npuscope.store.run().panels.knobs !== undefined")
        page.get_by_role("tab", name="Knobs").click()
        page.locator('[data-turn="TILE=128"]').click()
        shown(page, "5")
        assert state(page, "versions.at(-1).name") == "TILE=128"
        until(other.page, "npuscope.store.state.versions.at(-1).name === 'TILE=128'")
        assert state(other.page, "run") == "4"
        # WHEN its value is written into the file, THEN the next save has it
        page.locator('[data-knob="TILE"]').get_by_role("button", name="write into the file").click()
        shown(page, "6")
        assert "COLS, TILE = 256, 128" in file.read_text()
        # WHEN the file is edited in the page, THEN it is saved and followed, and the editor stays as it was
        page.get_by_role("tab", name="Source").click()
        page.get_by_role("button", name="edit", exact=False).click()
        editor = page.get_by_label("Text of program.py")
        editor.fill(editor.input_value().replace("256, 128", "256, 16"))
        page.keyboard.press("Control+s")
        shown(page, "7")
        assert "COLS, TILE = 256, 16" in file.read_text()
        assert editor.input_value() == file.read_text()
        # AND the save can be undone
        page.get_by_role("button", name="undo the save").click()
        shown(page, "8")
        assert "COLS, TILE = 256, 128" in file.read_text()
        # WHEN two versions are compared, THEN they stand beside each other with the lines that changed
        page.get_by_role("tab", name="Versions").click()
        page.locator('tr[data-version="2"]').get_by_role("button", name="compare").click()
        until(page, "npuscope.store.state.panel === 'compare'")
        assert (state(page, "beside"), state(page, "run")) == ("2", "8")  # A is the older
        changed = page.locator("table.diff").inner_text()
        assert "COLS, TILE = 256, 32" in changed
        assert "COLS, TILE = 256, 128" in changed
        # WHEN a version gets a name that is no text of ours, THEN it stays text
        page.get_by_role("tab", name="Versions").click()
        page.locator('tr[data-version="4"] td.name button').click()
        page.locator('tr[data-version="4"] input').fill("<b>fast</b>")
        page.keyboard.press("Enter")
        until(other.page, "npuscope.store.state.versions.some(one => one.name === '<b>fast</b>')")
        assert page.locator("table.versions b").count() == 0
        # WHEN the lab ends, THEN the page says so and keeps what it shows
        running.process.terminate()
        until(page, "npuscope.store.state.live.gone || npuscope.store.state.live.lost")
        assert "lab" in page.locator(".status").inner_text()
        assert page.locator(".timeline canvas").count() > 0
        requests = [
            one for one in (*watched.requests, *other.requests) if not one.startswith((running.url, "blob:", "data:"))
        ]
        assert requests == []
        assert [one for one in watched.errors if "ERR_" not in one] == []  # but for the server that is gone


TWO_RANKS = """from types import SimpleNamespace

import npuscope.tile as pl
import npuscope.tile.distributed as pld
from npuscope.tile.golden import TensorSpec, run_jit

RANKS, HERE = 2, 2  # turns of the second rank: the first has one


@pl.jit
def turn(x: pl.InOut[pl.Tensor[[16, 256], pl.FP32]],
         signal: pl.InOut[pld.DistributedTensor[[2, 1], pl.INT32]], rank: pl.Scalar[pl.INT32]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="work"):
        for turn in pl.range(1 + rank * (HERE - 1)):
            x[:, :] = pl.add(x[:, :], x[:, :])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="meet"):
        pld.system.notify(signal, peer=1 - rank, offsets=[rank, 0], value=1, op=pld.NotifyOp.AtomicAdd)
        pld.system.wait(signal, offsets=[1 - rank, 0], expected=1, cmp=pld.WaitCmp.Ge)
    return x


@pl.jit.host
def host(x: pl.InOut[pl.Tensor[[RANKS, 16, 256], pl.FP32]]):
    signals = pld.alloc_window_buffer(2 * 4)
    for rank in pl.range(RANKS):
        turn(x[rank], pld.window(signals, [2, 1], dtype=pl.INT32), rank, device=rank)


run_jit(fn=host, specs=[TensorSpec("x", [RANKS, 16, 256], pl.FP32, init_value=1.0, is_output=True)],
        compile_cfg={"distributed_config": SimpleNamespace(device_ids=list(range(RANKS)))})
"""


def test_a_program_over_ranks_is_seen_rank_by_rank_and_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "ranks.py"
    file.write_text(TWO_RANKS)
    with chromium() as browser, watched_page(browser) as watched, lab(file) as running:
        page = watched.page
        page.goto(running.url)
        page.wait_for_selector(".app")
        until(page, "globalThis.npuscope?.store.run()?.panels.ranks !== undefined")
        # GIVEN the rank that is launched last, WHEN all ranks are chosen
        units = "npuscope.shell.pane.views[0].timeline.lanes.map(lane => lane.unit)"
        assert not any(" " in unit for unit in page.evaluate(units))
        chooser = page.get_by_label("Rank", exact=True)
        assert chooser.input_value() == "1"
        chooser.select_option("all")
        until(page, "npuscope.store.state.rank === 'all'")
        # THEN both lie below each other, and an arrow leads to the wait of rank 0 from the rank that came late
        assert {"0 AIV", "1 AIV"} <= set(page.evaluate(units))
        assert "all 2 ranks" in page.locator("header").inner_text()
        kinds, waits = page.evaluate(
            "(() => { const { edges } = npuscope.store.run().timeline, kind = edges.kinds.indexOf('late peer');"
            "return [edges.kinds, edges.kind.filter(one => one === kind).length]; })()"
        )
        assert (waits, "late peer" in kinds) == (1, True)
        # AND the ranks' table stays, while panels about the one program go
        tabs = page.locator("[role=tab]").all_inner_texts()
        assert ("Ranks" in tabs, "Inside" in tabs) == (True, False)
        # WHEN the other rank is chosen and its last block selected, THEN what is said is of that rank
        chooser.select_option("0")
        until(page, "npuscope.store.state.rank === '0'")
        assert "rank 0 of 2" in page.locator("header").inner_text()
        page.evaluate("(v => npuscope.shell.pane.choose(v, v.model.slices.start.length - 1, false))"
                      "(npuscope.shell.pane.views[0])")  # fmt: skip
        until(page, "npuscope.store.state.selection !== null")
        # WHEN the file is saved, THEN the same rank of the new save is shown
        save(file, TWO_RANKS.replace("HERE = 2, 2", "HERE = 2, 40"))
        shown(page, "2")
        assert "rank 0 of 2" in page.locator("header").inner_text()
        # AND a link opens the page with that rank; without its number it is the one launched last again
        until(page, "location.hash.includes('rank=0')")
        page.reload()
        until(page, "globalThis.npuscope?.store.state.rank === '0'")
        assert "rank 0 of 2" in page.locator("header").inner_text()
        page.get_by_label("Rank", exact=True).select_option("1")
        until(page, "npuscope.store.state.rank === '1'")
        assert "turn on rank 1 of 2" in page.locator("header").inner_text()
        # WHEN two saves are compared, THEN they are of the same rank
        page.get_by_role("tab", name="Versions").click()
        page.locator('tr[data-version="1"]').get_by_role("button", name="compare").click()
        until(page, "npuscope.store.state.panel === 'compare'")
        assert watched.errors == []
