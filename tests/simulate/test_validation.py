"""docs/validation.md: every row can be predicted, every note is of a row, and the page has them all."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from validation import fit, predictions, variants  # noqa: E402

from npuscope.device.chip import load  # noqa: E402

ROWS = tomllib.loads((ROOT / "benchmarks/validation/rows.toml").read_text())["row"]
NOTES = tomllib.loads((ROOT / "benchmarks/validation/notes.toml").read_text())["row"]


def test_every_row_has_a_prediction_and_every_note_a_row() -> None:
    keys = [row["key"] for row in ROWS]
    assert len(set(keys)) == len(keys)
    for key in keys:
        assert key in predictions.ROWS or key.startswith(tuple(predictions.FAMILIES)), key
    assert set(NOTES) <= set(keys)


def test_the_page_has_every_row() -> None:
    page = (ROOT / "docs/validation.md").read_text()
    for row in ROWS:
        assert f"| {row['what']} |" in page


@pytest.mark.parametrize("name", variants.CHANGES)
def test_a_variant_finds_what_it_replaces(name: str) -> None:
    assert (variants.folder(name) / "decode_layer.py").is_file()


def test_fitted_constants_lie_within_their_ranges_and_say_that_they_were_fitted() -> None:
    timing = load("910b1").timing
    for names, (least, most) in fit.ranges().items():
        assert least <= timing[names[0]].value <= most, names
        for name in names:
            assert timing[name].confidence == "fitted"
            assert "benchmarks/validate.py" in timing[name].source
