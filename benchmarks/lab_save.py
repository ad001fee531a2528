"""From saving a file of the Qwen3-14B decode layer to the repainted timeline, in Debian's Chromium.

    python benchmarks/lab_save.py

Each save changes another tile size of the layer's configuration, so that the bodies it touches were never lowered
before: nothing is kept from runs before this one. `seen` is when the server began its work, `repainted` when the page
had drawn the new run; `CPU` is what the process that ran, checked and simulated the program took until its timeline
was there, the part that depends least on who else uses the machine.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Error

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from browser import chromium, watched_page
from lab_server import lab
from measure import table

MODELS = Path(__file__).resolve().parents[1] / "models"
SAVES = {
    "    tk: int = 64": "    tk: int = 32",
    "    qkv_tk: int = 256": "    qkv_tk: int = 128",
    "    chunk: int = 256": "    chunk: int = 128",
    "    out_n: int = 512": "    out_n: int = 256",
    "    mlp_n: int = 1024": "    mlp_n: int = 512",
}
DRAWN = """() => npuscope.store.on(["run"], () => requestAnimationFrame(() => requestAnimationFrame(() => {
    globalThis.repainted = [npuscope.store.state.run, Date.now()];
})))"""


def until(page: Any, condition: str) -> Any:
    while True:
        try:
            if value := page.evaluate(condition):
                return value
        except Error:  # while the page is loaded its context is replaced
            pass
        page.wait_for_timeout(10)


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(shutil.copytree(MODELS / "qwen3_14b", Path(folder, "qwen3_14b")), "decode_layer.py")
        config = program.with_name("config.py")
        os.environ["XDG_CACHE_HOME"] = f"{folder}/caches"
        with lab(program) as running, chromium() as browser, watched_page(browser) as watched:
            page = watched.page
            page.goto(running.url)
            until(page, "globalThis.npuscope?.store.state.versions[0]?.has_panels")
            page.evaluate(DRAWN)
            for number, (old, new) in enumerate(SAVES.items(), 2):
                text = config.read_text()
                assert old in text
                before = time.time()
                config.write_text(text.replace(old, new))
                drawn = until(page, f"globalThis.repainted?.[0] === '{number}' && globalThis.repainted[1]") / 1000
                version = page.evaluate("npuscope.store.state.versions.at(-1)")
                rows.append(
                    [str(number), *(f"{one:.2f}" for one in (version["at"] - before, drawn - before, version["cpu_s"]))]
                )
                until(page, "npuscope.store.state.versions.at(-1).has_panels")
    table("From save to the repainted timeline", ["save", "seen s", "repainted s", "CPU s"], rows)


if __name__ == "__main__":
    main()
