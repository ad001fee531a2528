"""Settings from outside reach a script as options, constants and variables, and leave nothing behind."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from npuscope.base.errors import BadInput
from npuscope.tile.script.places import UnknownSetting
from npuscope.tile.script.run import run_script

SCRIPT = """import argparse, os
import numpy as np
import npuscope.tile as pl

A, B = 1, 2
NAME: str = "plain"
SIZES = (64, 64)


@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint=f"{NAME}_{A + B}"):
        y = pl.assemble(y, pl.slice(x, list(SIZES), [0, 0]), [0, 0])
    return y


parser = argparse.ArgumentParser()
parser.add_argument("--word", default="")
parser.add_argument("--on", action="store_true")
parser.add_argument("--dual_gate", action=argparse.BooleanOptionalAction)
o = parser.parse_args()
NAME = NAME + o.word + "on" * o.on + f"{o.dual_gate}" * (o.dual_gate is not None) + os.getenv("TAIL", "")
program(np.zeros((64, 64), np.float32), np.zeros((64, 64), np.float32))
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT)
    return tmp_path / "script.py"


def kernel(script: Path, *argv: str, **settings: str) -> str:
    (recording,) = run_script(script, argv, "shapes", settings=settings).recordings
    return recording.tasks[0].kernel


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "plain_3"),
        ({"A": "5"}, "plain_7"),  # one of two in a line
        ({"A": "5", "B": "7"}, "plain_12"),
        ({"SIZES": "(32, 64)"}, "plain_3"),
        ({"WORD": "w"}, "plainw_3"),  # an option
        ({"word": "w"}, "plainw_3"),
        ({"ON": "1"}, "plainon_3"),
        ({"ON": "off"}, "plain_3"),
        ({"DUAL_GATE": "0"}, "plainFalse_3"),
        ({"DUAL_GATE": "yes"}, "plainTrue_3"),
        ({"TAIL": "t"}, "plaint_3"),  # a variable
    ],
    ids=str,
)
def test_a_setting_takes_every_way_there_is(script: Path, settings: dict[str, str], expected: str) -> None:
    assert kernel(script, **settings) == expected


def test_settings_count_over_arguments_and_leave_nothing_behind(script: Path) -> None:
    parse, environment, before = argparse.ArgumentParser.parse_known_args, os.environ, dict(os.environ)
    assert kernel(script, "--word", "a", WORD="b", TAIL="c") == "plainbc_3"
    assert argparse.ArgumentParser.parse_known_args is parse
    assert os.environ is environment
    assert dict(os.environ) == before
    assert kernel(script) == "plain_3"


def test_a_name_that_the_script_does_not_have_is_refused_with_those_that_it_has(script: Path) -> None:
    with pytest.raises(UnknownSetting, match=r"variable TILE\. .* A, B, NAME, SIZES.*--word, --on, --dual_gate"):
        kernel(script, TILE="5", A="2")
    with pytest.raises(BadInput, match="--on is a switch and takes 0 or 1, not 'maybe'"):
        kernel(script, ON="maybe")
