"""From saving a file of the Qwen3-14B decode layer to its diagnostics in an editor: a pygls client and `npuscope lsp`.

    python benchmarks/editor_save.py

The saves are those of lab_save.py: nothing is kept from runs before. `first` is when the editor had the errors and the
time of the new text, `all` when it had the findings, too; `CPU` is of the server and its processes until then.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from lab_save import MODELS, SAVES
from lsp_client import Editor
from measure import table

from npuscope.editor.server import LOOKED


def cpu_s() -> float:
    """Of all processes below this one, those that have ended and were waited for as well."""
    fields = {
        int(one.parent.name): one.read_text().rpartition(")")[2].split() for one in Path("/proc").glob("[0-9]*/stat")
    }
    family = [os.getpid()]
    for one in family:
        family += [child for child, its in fields.items() if int(its[1]) == one]
    return sum(int(ticks) for one in family[1:] for ticks in fields[one][11:15]) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        program = Path(shutil.copytree(MODELS / "qwen3_14b", Path(folder, "qwen3_14b")), "decode_layer.py")
        config = program.with_name("config.py")
        os.environ["XDG_CACHE_HOME"] = f"{folder}/caches"
        editor = Editor(fixes=False)
        looks: list[tuple[float, float, bool]] = []

        @editor.client.feature(LOOKED)
        def looked(given: Any) -> None:
            looks.append((time.monotonic(), cpu_s(), given.whole))

        def whole() -> bool:
            return any(one[2] for one in looks)

        editor.open(program)
        editor.open(config)
        editor.wait(whole)
        for number, (old, new) in enumerate(SAVES.items(), 1):
            text = config.read_text()
            assert old in text
            time.sleep(2)  # processes for the next save are warm, as a person is slower than they
            looks.clear()
            start, cpu = time.monotonic(), cpu_s()
            editor.save(config, text.replace(old, new))
            editor.wait(whole)
            ends = looks[0], looks[-1]
            rows.append([str(number), *(f"{value:.2f}" for at, used, _ in ends for value in (at - start, used - cpu))])
        editor.end()
    table("From save to diagnostics", ["save", "first s", "its CPU s", "all s", "their CPU s"], rows)


if __name__ == "__main__":
    main()
