"""A function is rewritten once: the next process takes it from where it is kept, unless what its names mean changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys
import numpy as np
import npuscope.tile as pl
from npuscope.tile.language import rewrite

counted = []
before = rewrite._rewritten
rewrite._rewritten = lambda *given: counted.append(1) or before(*given)

@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="add"):
        y[0:16, :] = pl.add(x[0:16, :], 1.0)
    return y

y = np.zeros((16, 64), np.float32)
program(np.ones((16, 64), np.float32), y)
print(len(counted), float(y.sum()))
"""


def told(file: Path, cache: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, str(file)],
        capture_output=True, text=True, check=True, env={**os.environ, "XDG_CACHE_HOME": str(cache)},
    )  # fmt: skip
    return done.stdout.split()


def test_a_function_is_rewritten_once_for_each_text(tmp_path: Path) -> None:
    file, cache = tmp_path / "program.py", tmp_path / "cache"
    file.write_text(PROGRAM)
    assert told(file, cache) == ["1", "2048.0"]
    assert told(file, cache) == ["0", "2048.0"]
    file.write_text(PROGRAM.replace("1.0)", "2.0)"))
    assert told(file, cache) == ["1", "3072.0"]
    for kept in cache.rglob("rewritten/*"):  # what is broken is not used
        kept.write_bytes(b"rubbish")
    assert told(file, cache) == ["1", "3072.0"]


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    file, cache = tmp_path / "program.py", tmp_path / "cache"
    file.write_text(PROGRAM)
    told(file, cache)
    (folder,) = cache.rglob("rewritten")
    folder.chmod(0o777)
    assert told(file, cache) == ["1", "2048.0"]
