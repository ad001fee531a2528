"""The pictures of the lab in the documentation, taken in Debian's Chromium from what anybody can make.

    python benchmarks/pictures.py              # docs/lab*.png
    python benchmarks/pictures.py --all DIR    # every panel, light and dark, wide and narrow, to look at

Captures are those of `npuscope demo`, programs those of models/.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of tests.lab

from browser import chromium, watched_page
from lab_server import Lab, lab
from palette import smaller

from npuscope.trace.example import HAND_OUT, write_decode_run
from tests.lab.app import until

ROOT = Path(__file__).resolve().parents[1]
LAYER, GEMM = Path("models/qwen3_14b/decode_layer.py"), Path("models/basics/gemm.py")
LIVE = "live"
SETTLED = "npuscope.store.state.live.working.length === 0 && npuscope.store.run()?.panels.knobs !== undefined"
CHOOSE = "npuscope.shell.pane.choose(npuscope.shell.pane.views[0], {slice}, false)"
OPEN = "document.querySelector('.graph .node').dispatchEvent(new MouseEvent('dblclick', {bubbles: true}))"


@dataclass(frozen=True)
class Picture:
    """A panel of a page; `act` is what a reader has done. Those with a `height` stand in the documentation."""

    name: str
    page: str
    link: str = ""
    act: str = ""
    height: int = 0
    width: int = 1240


PICTURES = (
    Picture("lab", "layer", height=860, width=1400),
    Picture("lab_source", "layer", "panel=source&split=no", height=900),
    Picture("lab_inside", "layer", "panel=inside", CHOOSE.format(slice=100), 900),
    Picture("lab_kernels", "layer", "panel=kernels&select=kernel.up_proj", height=900),
    Picture("lab_memory", "layer", "panel=memory&split=no", height=900),
    Picture("lab_graph", "layer", "panel=graph&split=no", height=900),
    Picture("lab_graph_open", "layer", "panel=graph&split=no", OPEN),
    Picture("lab_overview", "layer", "panel=overview&split=no"),
    Picture("lab_whatif", "whatif", "split=no", height=760),
    Picture("lab_whatif_capture", "whatif_capture", "split=no"),
    Picture("lab_report", "report"),
    Picture("lab_report_overview", "report", "panel=overview"),
    Picture("lab_range", "report", "select=range.20000.60000"),
    Picture("lab_search", "report", "find=matmul"),
    Picture("lab_cause", "report", "select=cause.0"),
    Picture("lab_compare", "compare", "panel=compare", height=900),
    Picture("lab_several", "several"),
    Picture("lab_sweep", "sweep", height=720),
    Picture("lab_rank", "rank"),
    Picture("lab_passes", "passes", height=700),
    Picture("lab_roofline", "roofline", height=780),
    Picture("lab_align", "align", height=620),
    Picture("lab_history", "history", height=720),
    Picture("lab_ranks", "ranks", "panel=ranks&split=no"),
    Picture("lab_memory_page", "memory"),
    Picture("lab_graph_page", "graph"),
    Picture("lab_versions", LIVE, "panel=versions&split=no", height=520),
    Picture("lab_knobs", LIVE, "panel=knobs&split=no", height=520),
    Picture("lab_live_whatif", LIVE, "panel=whatif&split=no"),
    Picture("lab_error", LIVE, "panel=source&split=no", "break", 560),
)


def npuscope(folder: Path, *words: str | Path) -> None:
    """One command, run in a folder into which it writes its page."""
    command = [str(Path(sys.executable).with_name("npuscope")), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")


def history(file: Path, luck: np.random.Generator) -> None:
    """Forty commits; at the 26th one kernel becomes slower."""
    lines = []
    for number in range(40):
        own = {"qk_matmul": 31_000, "softmax": 22_000, "sv_matmul": 27_000 + 4_000 * (number >= 25)}
        kernels = {name: round(ns * (1 + 0.01 * luck.standard_normal())) for name, ns in own.items()}
        lines.append({"commit": f"{number:03d}-{luck.integers(1 << 24):06x}", "wall_ns": 9 * sum(kernels.values()),
                      "kernels": kernels})  # fmt: skip
    file.parent.mkdir()
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


def pages(folder: Path, wanted: set[str]) -> None:
    """The pages that are asked for, each by the command that writes it."""
    luck = np.random.default_rng(0)
    shutil.copytree(ROOT / "models", folder / "models")
    npuscope(folder, "demo", "--keep", "demo")
    table = "demo/kernel_details.csv"
    for side, slower in (("before", 1.0), ("after", 1.2)):
        for n in range(5):
            write_decode_run(folder / f"{side}{n}", hand_out=round(slower * HAND_OUT + 2 * luck.standard_normal()))
    for rank in range(4):
        (place := folder / f"ranks/rank_{rank}").mkdir(parents=True)
        shutil.copy(folder / table, place)
    history(folder / "commits/runs.jsonl", luck)
    runs = [f"{side}{n}" for side in ("before", "after") for n in range(5)]
    commands: dict[str, tuple[str | Path, ...]] = {
        "layer": ("simulate", LAYER, "--html"),
        "whatif": ("whatif", LAYER, "--html"),
        "whatif_capture": ("whatif", "demo/run", "--html"),
        "report": ("report", "demo/run", "--html"),
        "compare": ("compare", "demo/run", "demo/slow_scheduler", "--html"),
        "several": ("compare", *runs[:5], "vs", *runs[5:], "--html"),
        "sweep": ("sweep", GEMM, "--set", "TILE=128,64,32,16", "--html"),
        "rank": ("rank", GEMM, *(GEMM.with_name(f"{name}.py") for name in ("rms_norm", "rope", "softmax")), "--html"),
        "passes": ("forward", table, "--html"),
        "roofline": ("roofline", table, "--device", "a3", "--html"),
        "align": ("align", table, table, "--pass", "0", "--predicted-pass", "2", "--html"),
        "history": ("history", "commits", "--html"),
        "ranks": ("report", "ranks", "--html"),
        "memory": ("memory", LAYER, "--html"),
        "graph": ("graph", LAYER, "--html"),
    }
    for name, words in commands.items():
        if name in wanted:
            npuscope(folder, *words, f"{name}.html")


def settled(page: Any) -> None:
    page.wait_for_selector("html[data-ready]")
    page.wait_for_timeout(300)


class Studio:
    """A program in the lab as somebody at work on it has it: saves, a name, knobs that were turned."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "gemm.py"
        self.text = (ROOT / GEMM).read_text()
        self.file.write_text(self.text)

    def work(self, running: Lab, page: Any) -> None:
        page.goto(running.url)
        until(page, f"globalThis.npuscope?.store?.state.runs.length > 0 && {SETTLED}")
        for old, new in (("stage=2", "stage=3"), ("TILE = 128", "TILE = 64"), ("TILE = 128", "TILE = 128 ")):
            count = page.evaluate("npuscope.store.state.versions.length")
            self.file.write_text(self.text.replace(old, new))
            until(page, f"npuscope.store.state.versions.length > {count} && {SETTLED}")
        running.post("version/2", {"name": "three in flight"})
        for value in (64, 32):
            running.post("knob", {"settings": {"TILE": value}})
        until(page, f"npuscope.store.state.versions.length === 6 && {SETTLED}")

    def breaks(self, page: Any) -> None:
        self.file.write_text(self.text.replace("total = pl.matmul(", "total = pl.matmull("))
        until(page, "npuscope.store.state.live.broken !== null && document.querySelector('tr.failed') !== null")


def take(page: Any, picture: Picture, file: Path, studio: Studio, whole: bool) -> None:
    if picture.act == "break":
        studio.breaks(page)
    elif picture.act:
        page.evaluate(picture.act)
    page.wait_for_timeout(300)
    page.screenshot(path=str(file), full_page=whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path)
    parser.add_argument("--only", default="", help="names of pictures, with commas")
    asked = parser.parse_args()
    chosen = [one for one in PICTURES if one.name in (asked.only or one.name).split(",") and (asked.all or one.height)]
    target: Path = asked.all or ROOT / "docs"
    target.mkdir(parents=True, exist_ok=True)
    sizes = [(1400, 900), (480, 900)] if asked.all else [(0, 0)]
    themes = ["light", "dark"] if asked.all else ["light"]
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        folder = Path(place)
        pages(folder, {one.page for one in chosen})
        studio = Studio(folder)
        live = [one for one in chosen if one.page == LIVE]
        for theme in themes:
            for width, height in sizes:
                options = {"color_scheme": theme, "device_scale_factor": 1}
                for one in (one for one in chosen if one.page != LIVE):
                    size = {"width": width or one.width, "height": height or one.height}
                    with watched_page(browser, viewport=size, **options) as watched:
                        watched.page.goto(f"{(folder / one.page).as_uri()}.html#{one.link}")
                        settled(watched.page)
                        take(watched.page, one, named(target, one, theme, width), studio, whole=width == 480)
                        complain(one, watched.errors)
                if live:
                    studio.file.write_text(studio.text)
                    with lab(studio.file) as running, watched_page(browser, **options) as watched:
                        studio.work(running, watched.page)
                        for one in live:
                            watched.page.set_viewport_size(
                                {"width": width or one.width, "height": height or one.height}
                            )
                            watched.page.evaluate(f"location.hash = '{one.link}'")
                            take(watched.page, one, named(target, one, theme, width), studio, whole=width == 480)
                            complain(one, watched.errors)
        for one in [] if asked.all else chosen:
            smaller(browser, target / f"{one.name}.png")


def named(target: Path, picture: Picture, theme: str, width: int) -> Path:
    return target / (f"{picture.name}_{theme}_{width}.png" if width else f"{picture.name}.png")


def complain(picture: Picture, errors: list[str]) -> None:
    if errors:
        print(f"{picture.name}: {errors[0]}", file=sys.stderr)


if __name__ == "__main__":
    main()
