"""The knobs of a program: what its run reads, with values that divide what is cut and that its classes take."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuscope.answer.knobs import Knob, knobs_of
from npuscope.base.errors import BadInput
from npuscope.tile.script.run import run_script

MODELS = Path(__file__).resolve().parents[2] / "models"


@pytest.fixture(scope="module")
def flagship() -> dict[str, Knob]:
    return {knob.name: knob for knob in knobs_of(MODELS / "qwen3_14b" / "decode_layer.py")}


def test_a_plain_script_has_its_constants() -> None:
    """TILE cuts M = N = 512 and K = 1024: powers of two from 16 (a cube tile's side) to 512, within a factor of 8."""
    knobs = {knob.name: knob for knob in knobs_of(MODELS / "basics" / "gemm.py")}
    tile = knobs["TILE"]
    assert (tile.kind, tile.value, tile.values) == ("constant", 128, (16, 32, 64, 128, 256, 512))
    assert set(tile.cuts) == {"M", "N", "K"}
    assert (Path(tile.file).name, tile.line) == ("gemm.py", 14)
    assert not knobs["M"].cuts


def test_the_flagship_has_the_tiles_that_it_reads(flagship: dict[str, Knob]) -> None:
    """mlp_n cuts 17408 = 2^10 * 17 into tiles that chunk = 256 and tk = 64 divide: 256 * (1, 2, 4, 17)."""
    assert flagship["mlp_n"].values == (256, 512, 1024, 4352)
    assert flagship["tk"].values == (16, 32, 64, 128, 256, 512)
    assert flagship["slab"].value == 1024
    assert "a8_tn" not in flagship  # only the A8W8 layer reads it
    assert not any(name.startswith("SMALL") for name in flagship)  # the model that does not run
    assert flagship["storage"].values == ("bf16", "fp32")
    assert flagship["max_seq"].values == ()  # anything goes


def test_with_the_small_model_it_has_that_models_tiles() -> None:
    knobs = {knob.name: knob for knob in knobs_of(MODELS / "qwen3_14b" / "decode_layer.py", ["--small"])}
    assert knobs["SMALL.tiles.tk"].value == 64
    assert "tk" not in knobs


def test_every_value_of_a_field_is_taken_by_its_class(flagship: dict[str, Knob]) -> None:
    file = MODELS / "qwen3_14b" / "decode_layer.py"
    for knob in flagship.values():
        if knob.kind == "default" and knob.name in ("slab", "out_k"):
            for value in knob.values:
                run_script(file, ["--max-seq", "128"], "shapes", settings={knob.name: str(value)})
    with pytest.raises(BadInput, match="does not divide"):
        run_script(file, (), "shapes", settings={"slab": "768"})


def test_a_broken_program_has_what_its_text_shows(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("N, TILE = 256, 64\nfor at in range(0, N, TILE):\n    raise RuntimeError\n")
    (tile, size) = knobs_of(file)
    assert (tile.name, tile.values, size.name) == ("TILE", (16, 32, 64, 128, 256), "N")


def test_a_trees_own_golden_which_does_not_run_has_none(tmp_path: Path) -> None:
    (tmp_path / "golden").mkdir()
    (tmp_path / "golden" / "__init__.py").write_text(
        "from dataclasses import dataclass\n@dataclass\nclass TensorSpec:\n    name: str\n    is_output: bool = False\n"
    )
    (tmp_path / "script.py").write_text("from golden import TensorSpec\n\nTILE = 64\n")
    assert [knob.name for knob in knobs_of(tmp_path / "script.py")] == ["TILE"]
