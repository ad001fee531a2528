"""Notebooks as entries, with the lines that they have in the file; and scripts that call nothing npuscope knows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import npuscope

from npuscope.base.errors import BadInput
from npuscope.base.notebook import code_of
from npuscope.tile.script.run import run_script

CELLS = [
    ("markdown", ["# Twice\n", "import nothing"]),
    ("code", ["%matplotlib inline\n", "import numpy as np\n", "import pypto.language as pl\n", "N = 64"]),
    (
        "code",
        [
            "@pl.jit\n",
            "def twice(x: pl.Tensor[[N, 32], pl.FP32], y: pl.Out[pl.Tensor[[N, 32], pl.FP32]]):\n",
            '    with pl.at(level=pl.Level.CORE_GROUP, name_hint="twice"):\n',
            "        y[:] = pl.mul(x, 2.0)\n",
            "    return y",
        ],
    ),
    ("code", ["%%bash\n", "echo 'no Python'"]),
    ("code", ["y = np.zeros((N, 32), np.float32)\n", "if N:\n", "    !ls\n", "twice(np.ones((N, 32), np.float32), y)"]),
]


def written(folder: Path, one_string: bool = False) -> Path:
    cells: list[dict[str, object]] = [
        {"cell_type": kind, "metadata": {}, "source": "".join(lines) if one_string else lines} for kind, lines in CELLS
    ]
    file = folder / "twice.ipynb"
    file.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, indent=1))
    return file


@pytest.mark.parametrize("one_string", [False, True])
def test_a_notebook_runs_and_its_lines_are_the_files(tmp_path: Path, one_string: bool) -> None:
    file = written(tmp_path, one_string)
    ran = run_script(file, mode="shapes")
    (recording,) = ran.recordings
    assert [task.kernel for task in recording.tasks] == ["twice"]
    assert any("4 lines for the notebook's own shell" in note for note in recording.notes)
    site = recording.sites[recording.tasks[0].site]
    if not one_string:
        assert 'name_hint=\\"twice\\"' in file.read_text().splitlines()[site.line - 1]


def test_every_command_takes_a_notebook(tmp_path: Path) -> None:
    file = written(tmp_path)
    for command in ("run", "check", "simulate"):
        answer = npuscope(command, file)
        assert answer.returncode == 0, answer.stderr


def test_a_file_that_is_no_notebook_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "twice.ipynb"
    file.write_text("{}")
    with pytest.raises(BadInput, match="not a notebook"):
        code_of(file)


def test_who_drives_its_program_in_another_way_hears_which_calls_are_looked_for(tmp_path: Path) -> None:
    file = tmp_path / "layer.py"
    file.write_text("import pypto.language as pl\n\n@pl.jit\ndef layer(x: pl.Tensor):\n    return x\n")
    answer = npuscope("run", file)
    assert answer.returncode == 2
    for words in ("layer.py, line 4", "it defines layer", "golden.run", "pypto.ir.compile"):
        assert words in answer.stderr
