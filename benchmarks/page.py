"""How long a frame of the timeline takes to draw, in Debian's Chromium without a graphics card.

    python benchmarks/page.py

A page of 100,800 slices on 72 lanes is zoomed in and out thirty times; 16 ms a frame is smooth, 50 would stutter.
tests/report/test_pages_in_browser.py counts what a frame draws.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser import chromium, watched_page
from measure import table

from npuscope import analysis
from npuscope.report.html import report_page
from tests.report.test_pages_in_browser import big, opened

FRAMES = """async () => {
    const lane = npuscope.swimlanes[0], times = [];
    for (let i = 0; i < 30; i++) {
        lane.zoom(i < 15 ? 0.8 : 1.25);
        await new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
        times.push(lane.frame);
    }
    return times;
}"""


def main() -> None:
    rows = []
    for slices, lanes in ((100_800, 72), (400_032, 72)):
        text = report_page("big", analysis.explain(big(slices, lanes)))
        with tempfile.TemporaryDirectory() as folder, chromium() as browser, watched_page(browser) as watched:
            frames = sorted(opened(watched.page, Path(folder), text).evaluate(FRAMES))
        middle, most = frames[len(frames) // 2], frames[-1]
        rows.append([f"{slices:,}", lanes, f"{middle:.1f}", f"{most:.1f}", f"{len(text) / 1e6:.1f}"])
    table("A frame of the timeline", ["slices", "lanes", "median ms", "longest ms", "page MB"], rows)


if __name__ == "__main__":
    main()
