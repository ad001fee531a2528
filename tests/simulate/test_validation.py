"""docs/validation.md: every row can be predicted, every note is of a row, and the page has them all."""

from __future__ import annotations

import shutil
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "benchmarks"))

from validation import fit, page, predictions, variants  # noqa: E402

from npuscope.device.chip import load  # noqa: E402

ROWS = tomllib.loads((ROOT / "benchmarks/validation/rows.toml").read_text())["row"]
NOTES = tomllib.loads((ROOT / "benchmarks/validation/notes.toml").read_text())


def test_every_row_has_a_prediction_and_every_note_a_row() -> None:
    keys = [row["key"] for row in ROWS]
    assert len(set(keys)) == len(keys)
    for key in keys:
        assert key in predictions.ROWS or key.startswith(tuple(predictions.FAMILIES)), key
    assert set(NOTES["row"]) <= set(keys)


def test_the_page_has_every_row() -> None:
    written = (ROOT / "docs/validation.md").read_text()
    for row in ROWS:
        assert f"| {row['what']} |" in written


def test_the_page_is_of_the_present_constants_and_notes() -> None:
    written = (ROOT / "docs/validation.md").read_text()
    for line in (page.HEAD, page.FORMS, page.BARS.rstrip(), *page._constants(load("910b1"))):
        assert line in written
    for notes in (NOTES["assumed"], NOTES["missing"], NOTES["row"].values()):
        assert all(note in written for note in notes)


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


def test_what_was_fitted_is_written_into_every_file_that_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load("910b1")
    names = [name for group in fit.ranges() for name in group]
    fitted = fit.changed(before, {name: 1.1 * before.timing[name].value for name in names})
    folder = tmp_path / "device"
    shutil.copytree(fit.FILES, folder)
    monkeypatch.setattr(fit, "FILES", folder)
    fit.put(fitted)
    for file in ("ascend910b1", *fit.SAME):
        timing = tomllib.loads((folder / f"{file}.toml").read_text())["timing"]
        assert {name: timing[name]["value"] for name in names if name != "hbm_rate"} == {
            name: fitted.timing[name].value for name in names if name != "hbm_rate"
        }
    for file in fit.BY_BANDWIDTH:
        rate = tomllib.loads((folder / f"{file}.toml").read_text())["timing"]["hbm_rate"]["value"]
        assert rate == pytest.approx(1.1 * load(file).timing["hbm_rate"].value, rel=0.01)
    # AND a constant that has no line is not lost in silence
    (folder / "ascend950.toml").write_text("")
    with pytest.raises(SystemExit, match="has 0 lines"):
        fit.put(fitted)
