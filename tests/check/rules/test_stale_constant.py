"""Docstrings and comments that name a constant with another value."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuscope.check.rules.stale_constant import findings_in
from npuscope.lower.source import read


def stale(tmp_path: Path, text: str) -> list[tuple[int, str]]:
    file = tmp_path / "layer.py"
    file.write_text(text)
    source = read(str(file))
    assert source
    return [(f.line, f.message) for f in findings_in(source)]


@pytest.mark.parametrize(
    "claim", ["BATCH_TILE=4", "BATCH_TILE = 4", "BATCH_TILE is 4", "BATCH_TILE: 4", "BATCH_TILE 4,"]
)
def test_a_docstring_that_was_not_changed_with_the_constant(tmp_path: Path, claim: str) -> None:
    text = f'"""A layer.\n\nTiles have {claim} and so on.\n"""\n\nBATCH_TILE = 16\n'
    assert stale(tmp_path, text) == [(3, "the text says BATCH_TILE is 4, the code says 16")]
    assert stale(tmp_path, text.replace("16", "4")) == []


def test_the_changed_line_is_shown_with_the_place_of_the_constant(tmp_path: Path) -> None:
    file = tmp_path / "layer.py"
    file.write_text("# rows: BATCH_TILE=4 of 64\nBATCH_TILE = 16\n")
    source = read(str(file))
    assert source
    (found,) = findings_in(source)
    assert found.change == "# rows: BATCH_TILE=16 of 64"
    assert found.also == ((str(file), 2),)


@pytest.mark.parametrize(
    "prose",
    [
        "K 5120 in 512 steps",  # no constant's name
        "TILE 5120 in 512 steps",  # beside, and the sentence goes on
        "HIDDEN // TILE = 20 chunks",
        "2 * TILE = 128",
        "TILE = 4 * 16",
        "TILE = 4 KB",
        "TILE=4x as much",
        "with TILE=4 it would not fit",
        "TILE=128 fails: the buffer overflows",
        "before June TILE was 4, TILE=4",
        "a TILE=32 instead of it",
        "TILE == 4",
        "TILES=4",
        "size.TILE=4",
        "TILE=64, as it is",
    ],
)
def test_prose_and_arithmetic_are_no_claims(tmp_path: Path, prose: str) -> None:
    assert stale(tmp_path, f"# {prose}\nTILE = 64\nHIDDEN = 1280\n") == []


def test_a_sentence_goes_on_over_lines_of_comments(tmp_path: Path) -> None:
    assert stale(tmp_path, "# The buffer overflows if\n# TILE=4 is taken.\nTILE = 64\n") == []
    assert stale(tmp_path, "# The tile is small:\n# TILE=4 is taken.\nTILE = 64\n") != []


def test_code_that_was_commented_out_claims_nothing(tmp_path: Path) -> None:
    assert stale(tmp_path, "# TILE = 4\nTILE = 64\n") == []


def test_constants_of_a_factory_derived_ones_and_imported_ones(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text("HIDDEN, HEADS = 8192, 64\nHEAD_DIM = HIDDEN // HEADS\n")
    text = """from sizes import HEAD_DIM, HEADS as COUNT

def factory():
    TILE, ROWS = 64, 2 * 8
    # it has TILE=64, ROWS=16, HEAD_DIM=128, COUNT=64,
    # it has TILE=32,
    # it has ROWS=8,
    # it has HEAD_DIM=64.
    return TILE
"""
    assert [line for line, _ in stale(tmp_path, text)] == [6, 7, 8]


def test_a_name_means_what_it_is_bound_to_around_the_text(tmp_path: Path) -> None:
    text = '''"""TILE=32 or so says one function."""

def one():
    TILE = 32  # so TILE=32

def two():
    TILE = 64
    # so TILE=32
    return TILE
'''
    assert [line for line, _ in stale(tmp_path, text)] == [8]


def test_what_the_text_does_not_tell_is_left_alone(tmp_path: Path) -> None:
    assert stale(tmp_path, "import os\n# TILE=4\nTILE = int(os.environ.get('TILE', 4))\n") == []
    assert stale(tmp_path, "# TILE=4\nTILE = 64\nTILE = size.tile\n") == []
