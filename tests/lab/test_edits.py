"""What a save changed in few words, values written into the text, and why a change has no effect."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest
from made import dozen

from npuscope.base.errors import NpuscopeError
from npuscope.lab.edits import edits
from npuscope.lab.job import answered
from npuscope.lab.messages import Question
from npuscope.tile.script.settings import with_settings

PROGRAM = """import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class Tiles:
    tk: int = 64  # ä
    tn: int = 128


BIG = Tiles(tn=256)
ROWS, COLS = 16, 32
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
HALF = ROWS // 2
"""


def test_constants_are_named_with_both_values_and_other_edits_counted() -> None:
    new = PROGRAM.replace("16, 32", "16, 64").replace("tn=256", "tn=512")
    assert [(one["line"], one["text"]) for one in edits({"/a/x.py": PROGRAM}, {"/a/x.py": new})] == [
        (11, "tn 256 → 512"),
        (12, "COLS 32 → 64"),
    ]
    (one,) = edits({"/a/x.py": PROGRAM}, {"/a/x.py": PROGRAM.replace("HALF = ROWS // 2", "HALF = ROWS // 4")})
    assert one == {"file": "x.py", "line": 15, "text": "1 line"}
    assert edits({"/a/x.py": PROGRAM}, {"/a/x.py": PROGRAM}) == []


@pytest.mark.parametrize(
    ("settings", "old", "new"),
    [
        ({"COLS": "64"}, "ROWS, COLS = 16, 32", "ROWS, COLS = 16, 64"),
        ({"tk": "32"}, "tk: int = 64  # ä", "tk: int = 32  # ä"),
        ({"BIG.tn": "64"}, "BIG = Tiles(tn=256)", "BIG = Tiles(tn=64)"),
        ({"steps": "8"}, "default=4", "default=8"),
    ],
)
def test_a_value_is_written_where_its_literal_stands(
    tmp_path: Path, settings: dict[str, str], old: str, new: str
) -> None:
    file = tmp_path / "x.py"
    file.write_text(PROGRAM)
    assert with_settings(file, settings) == {file: (PROGRAM, PROGRAM.replace(old, new))}
    assert file.read_text() == PROGRAM  # nothing is written here


def test_what_is_computed_is_not_written(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(PROGRAM)
    with pytest.raises(NpuscopeError, match="HALF"):
        with_settings(file, {"HALF": "4"})


def test_a_change_off_the_critical_path_says_so() -> None:
    trace = pickle.dumps(dozen())

    def first(kernel: str) -> str:
        change = {"what": "scale", "kernels": [kernel], "factor": 0.9}
        return str(json.loads(answered(Question("whatif", "run", trace, change)))["parts"][0]["text"])

    assert first("gate") == "No effect: gate is off the critical path."
    assert first("qk").startswith("What if: ")
