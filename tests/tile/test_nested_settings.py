"""Settings reach constants of modules, defaults of classes and fields of configurations, or are refused first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command import npuscope

from npuscope.base.errors import BadInput
from npuscope.tile.script.places import UnknownSetting
from npuscope.tile.script.run import run_script

SIZES = """from dataclasses import dataclass, field, replace

ROWS = 16


@dataclass(frozen=True)
class Tiles:
    n: int = 32
    k: int = field(default=64)

    def __post_init__(self):
        if 128 % self.n:
            raise ValueError(f"{self.n} does not divide 128")


@dataclass(frozen=True)
class Model:
    hidden: int
    tiles: Tiles = Tiles()
    kind: str = "plain"


class Plain:
    DEPTH = 2


LARGE = Model(128)
SMALL = Model(64, tiles=Tiles(n=16, k=32))
OTHER = replace(LARGE, kind="other")
"""
SCRIPT = """import numpy as np
import npuscope.tile as pl
import sizes  # type: ignore[import-not-found]
from sizes import LARGE, ROWS, Plain


def make(model):
    WIDTH = 64

    @pl.jit(auto_scope=True)
    def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        told = f"{model.hidden}_{model.tiles.n}_{model.tiles.k}_{model.kind}_{ROWS}_{Plain.DEPTH}_{WIDTH}"
        with pl.at(level=pl.Level.CORE_GROUP, name_hint=told):
            y = pl.assemble(y, pl.slice(x, [64, 64], [0, 0]), [0, 0])
        return y

    return program


print("it runs")
make(LARGE)(np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "sizes.py").write_text(SIZES)
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def told(script: Path, **settings: str) -> str:
    (recording,) = run_script(
        script, (), "shapes", settings={k.replace("__", "."): v for k, v in settings.items()}
    ).recordings
    return recording.tasks[0].kernel


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "128_32_64_plain_16_2_64"),
        ({"ROWS": "8"}, "128_32_64_plain_8_2_64"),  # a constant of a module
        ({"sizes__ROWS": "8"}, "128_32_64_plain_8_2_64"),
        ({"n": "64"}, "128_64_64_plain_16_2_64"),  # LARGE takes the default of Tiles, SMALL has its own
        ({"Tiles__k": "16"}, "128_32_16_plain_16_2_64"),  # field(default=64)
        ({"LARGE__tiles__n": "64"}, "128_64_64_plain_16_2_64"),
        ({"LARGE__n": "64", "LARGE__tiles__k": "8"}, "128_64_8_plain_16_2_64"),  # both at once, one word left out
        ({"LARGE__hidden": "256", "LARGE__kind": "new"}, "256_32_64_new_16_2_64"),
        ({"SMALL__n": "64"}, "128_32_64_plain_16_2_64"),  # another object
        ({"DEPTH": "3"}, "128_32_64_plain_16_3_64"),  # of a plain class
        ({"make__WIDTH": "32"}, "128_32_64_plain_16_2_32"),  # of a function around the kernel
        ({"WIDTH": "32"}, "128_32_64_plain_16_2_32"),
    ],
    ids=str,
)
def test_a_setting_reaches_what_the_program_is_made_of(script: Path, settings: dict[str, str], expected: str) -> None:
    assert told(script, **settings) == expected


def test_modules_that_were_imported_before_take_part_and_are_as_they_were_afterwards(
    script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(script.parent))
    import sizes  # type: ignore[import-not-found]

    assert told(script, ROWS="8").split("_")[4] == "8"
    assert sys.modules["sizes"] is sizes
    assert sizes.ROWS == 16
    del sys.modules["sizes"]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hidden": "4"}, "hidden may be any of LARGE.hidden, OTHER.hidden, SMALL.hidden. Name one."),
        ({"m": "4"}, "it has no option, constant, field or environment variable m"),
        ({"n": "wide"}, r"n is 32; it takes a number, not 'wide'"),
        ({"auto_scope": "maybe"}, r"auto_scope is True; it takes 0 or 1, not 'maybe'"),
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(
    script: Path, settings: dict[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    script.write_text("raise SystemExit('it ran')\n" + SCRIPT)
    with pytest.raises(BadInput, match=words):
        told(script, **settings)
    assert capsys.readouterr() == ("", "")


def test_a_value_that_a_class_does_not_take_is_told_with_its_reason(script: Path) -> None:
    with pytest.raises(BadInput, match=r"line 27: LARGE.tiles.n cannot be 48 \(ValueError: 48 does not divide 128\)"):
        told(script, LARGE__n="48")
    with pytest.raises(BadInput, match=r"sizes\.py, line 13: ValueError: 48 does not divide 128"):
        told(script, n="48")


def test_names_that_are_made_as_it_runs_are_still_found(script: Path) -> None:
    computed = "import os\nprefix = 'MY'\nassert os.environ[prefix + '_TILE'] == '5'\n"
    script.write_text(computed + SCRIPT)
    assert told(script, MY_TILE="5") == "128_32_64_plain_16_2_64"
    with pytest.raises(UnknownSetting, match="YOUR_TILE"):
        told(script, MY_TILE="5", YOUR_TILE="6")


def test_the_flagship_can_be_tuned_from_the_command_line() -> None:
    file = Path(__file__).resolve().parents[2] / "models" / "qwen3_14b" / "decode_layer.py"
    done = npuscope("simulate", file, "--set", "tile_n=256", "--", "--small")
    assert done.returncode == 2
    assert "has no option, constant, field or environment variable tile_n. The nearest it has are: " in done.stderr
    assert "Tiles." in done.stderr
    plain, turned = (
        npuscope("simulate", file, "--json", *setting, "--", "--small") for setting in ((), ("--set", "SMALL.tk=32"))
    )
    assert plain.returncode == turned.returncode == 0, turned.stderr
    assert plain.stdout != turned.stdout


DERIVED = """from dataclasses import dataclass

import numpy as np
import npuscope.tile as pl


@dataclass(frozen=True)
class Sizes:
    tile: int
    width: int = 0

    def __post_init__(self):
        object.__setattr__(self, "width", 2 * self.tile)


BIG, SMALL = Sizes(tile=64), Sizes(tile=32)


@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for block in pl.spmd(256 // BIG.width, name_hint="copy"):
        tile = pl.slice(x, [64, BIG.width], [0, block * BIG.width])
        y = pl.assemble(y, tile, [0, block * BIG.width])
    return y


program(np.zeros((64, 256), np.float32), np.zeros((64, 256), np.float32))
"""


def test_a_setting_of_a_configuration_that_does_not_run_is_told_to_change_nothing(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(DERIVED)
    # a field that only decides another one while its object is made is not read, but it changes what runs
    (ran,) = run_script(file, (), "shapes", settings={"BIG.tile": "32"}).runs
    assert (ran.recording.tasks[0].blocks, ran.recording.notices) == (4, ())
    # one of an object that nobody uses changes nothing, which is told at its line
    (ran,) = run_script(file, (), "shapes", settings={"SMALL.tile": "16"}).runs
    (notice,) = ran.recording.notices
    assert notice.message == "SMALL.tile did not change the program that ran: it takes another configuration"
    assert ran.recording.sites[notice.site].line == 16
    done = npuscope("simulate", file, "--no-report", "--set", "SMALL.tile=16")
    assert "line 16: SMALL.tile did not change the program that ran" in done.stdout
