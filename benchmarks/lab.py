"""How fast the app opens and moves, in Debian's Chromium without a graphics card.

    python benchmarks/lab.py

Pages of 100,000 and 1,000,000 slices on 72 lanes are opened from disk: `painted` is from the start of the navigation
to the end of the first drawing of the timeline. Then the timeline is zoomed in and out and moved, a step per frame.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser import chromium, watched_page
from measure import table

from npuscope import explain as analysis
from npuscope.lab.document import page
from npuscope.lab.runs import report_document
from npuscope.trace import Meta, Trace

SIZE = {"width": 1366, "height": 800}
PAINTED = 'performance.getEntriesByName("npuscope first drawn")[0]?.startTime'
MOVES = """async () => {
    const { store, shell } = npuscope, view = shell.pane.views[0], frames = [], drawing = [];
    const next = () => new Promise(done => requestAnimationFrame(done));
    await next();
    let before = performance.now();
    for (let i = 0; i < 90; i++) {
        if (i < 30) shell.pane.zoom(0.8);
        else if (i < 60) shell.pane.pan(i % 2 ? 0.3 : -0.25);
        else shell.pane.zoom(1.25);
        await next(); await next(); // one draws, the next is behind it
        const now = performance.now();
        frames.push((now - before) / 2); drawing.push(view.frame);
        before = now;
    }
    return [frames, drawing];
}"""


def big(slices: int, lanes: int = 72) -> Trace:
    """Slices of many lengths on many cores, each waiting for one before it."""
    each, luck = slices // lanes, np.random.default_rng(0)
    lane = np.repeat(np.arange(lanes), each)
    dur = luck.integers(1_500, 4_900, len(lane))
    start = np.tile(np.arange(each) * 5_000, lanes) + lane * 40
    task = np.arange(len(lane))
    frame = pl.DataFrame(
        {
            "lane": lane, "start": start, "dur": dur, "task": task, "block": np.zeros(len(lane), np.int32),
            "kernel": pl.Series([f"kernel_{n}" for n in range(20)]).gather(luck.integers(0, 20, len(lane))),
            "kind": pl.Series(["task"]).new_from_index(0, len(lane)),
            "dispatch": start - 300, "finish": start + dur + 200,
        }
    )  # fmt: skip
    places = pl.DataFrame({"lane": range(lanes), "name": [f"AIC_{n}" for n in range(lanes)], "unit": "AIC"})
    after = task[task % each > 0]
    edges = pl.DataFrame({"src": after - 1, "dst": after, "source": pl.Series(["tensormap"] * len(after))})
    return Trace.of(frame, places, Meta("made"), edges)


def measured(browser: Any, file: Path) -> tuple[float, list[float], list[float]]:
    """Milliseconds until painted, per frame while moving, and of those spent drawing."""
    with watched_page(browser, viewport=SIZE) as watched:
        watched.page.goto(file.as_uri())
        while (painted := watched.page.evaluate(PAINTED)) is None:
            watched.page.wait_for_timeout(20)
        frames, drawing = watched.page.evaluate(MOVES)
        if watched.errors:
            raise SystemExit(f"the page complained: {watched.errors[0]}")
    return painted, sorted(frames), sorted(drawing)


def main() -> None:
    rows = []
    for slices in (100_000, 1_000_000):
        text = page(report_document("big", analysis.explain(big(slices))))
        with tempfile.TemporaryDirectory() as folder, chromium() as browser:
            file = Path(folder) / "page.html"
            file.write_text(text)
            found = [measured(browser, file) for _ in range(3)]
        painted, frames, drawing = min(found)
        middle, slow = frames[len(frames) // 2], frames[int(len(frames) * 0.95)]
        rows.append(
            [
                f"{slices:,}", f"{len(text) / 1e6:.1f}", f"{painted:.0f}", f"{max(one[0] for one in found):.0f}",
                f"{middle:.1f}", f"{slow:.1f}", f"{1000 / slow:.0f}", f"{drawing[len(drawing) // 2]:.1f}",
            ]
        )  # fmt: skip
    heads = ["slices", "page MB", "painted ms", "slowest of 3", "frame ms", "95 % below", "frames/s", "drawing ms"]
    table("The app opens and moves", heads, rows)


if __name__ == "__main__":
    main()
