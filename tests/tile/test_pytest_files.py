"""Files of tests as entries: `npuscope run test_x.py`, PyPTO's own with their harness and everybody's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import npuscope as command

from npuscope.tile.script.run import run_script

CASE = """
import pytest
import torch
import pypto.language as pl
from harness.core.harness import PLATFORMS, DataType, PTOTestCase, TensorSpec
from pypto.runtime.runner import RunConfig


class Doubled(PTOTestCase):
    __test__ = False

    def define_tensors(self):
        return [
            TensorSpec("x", [16, 32], DataType.FP32, init_value=torch.randn),
            TensorSpec("y", [16, 32], DataType.FP32, is_output=True),
        ]

    def get_program(self):
        @pl.program
        class Program:
            @pl.function(type=pl.FunctionType.InCore)
            def kernel(self, x: pl.Tensor[[16, 32], pl.FP32], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
                return pl.mul(pl.load(x, [0, 0], [16, 32], valid_shape=[8, 32]), 2.0)

        return Program

    def compute_expected(self, tensors, params=None):
        tensors["y"][:] = float("nan")  # what is not valid counts for nothing
        tensors["y"][:8] = tensors["x"][:8] * FACTOR


@pytest.fixture(scope="session")
def runner(test_runner):
    return test_runner


@pytest.mark.parametrize("platform", PLATFORMS)
def test_twice(runner, platform):
    assert DataType.UINT32.torch_dtype is torch.int32  # goldens compute with the bits
    result = runner.run(Doubled(RunConfig(rtol=1e-6), platform=platform))
    assert result.passed, result.error
"""
OWN = """
import numpy as np
import pypto.language as pl
from numbers_of_mine import FACTOR


@pl.jit
def twice(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="twice"):
        y[:] = pl.mul(x, 2.0)
    return y


def test_values(ones):
    y = np.zeros((16, 16), np.float32)
    twice(ones, y)
    np.testing.assert_array_equal(y, FACTOR * ones)


def test_other():
    assert FACTOR
"""


def test_a_case_of_pyptos_harness_runs_on_one_platform(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    tmp_path.joinpath("conftest.py").write_text("from harness.core.test_runner import start_pipeline\n")
    file = tmp_path / "test_twice.py"
    file.write_text(CASE.replace("FACTOR", "2"))
    good = command("run", str(file))
    assert good.returncode == 0, good.stderr
    assert "1 passed, 3 deselected" in good.stdout
    file.write_text(CASE.replace("FACTOR", "3"))
    bad = command("run", str(file))
    assert bad.returncode == 1
    assert "1 of 1 tests failed: test_twice[a2a3sim]" in bad.stderr


def test_a_file_of_ones_own_has_its_own_fixtures(tmp_path: Path) -> None:
    tmp_path.joinpath("conftest.py").write_text(
        "import numpy as np, pytest\n@pytest.fixture\ndef ones():\n    return np.ones((16, 16), np.float32)\n"
    )
    tmp_path.joinpath("numbers_of_mine.py").write_text("FACTOR = 2\n")
    file = tmp_path / "test_own.py"
    file.write_text(OWN)
    chosen = command("run", str(file), "--json", "--", "-k", "values")
    assert json.loads(chosen.stdout)["tasks"] == 1
    simulated = command("simulate", str(file), "--json")  # numbers are not computed: what asserts them fails unheard
    assert simulated.returncode == 0, simulated.stderr
    assert '"twice"' in simulated.stdout


def test_settings_are_for_programs(tmp_path: Path) -> None:
    file = tmp_path / "test_nothing.py"
    file.write_text("def test_nothing():\n    pass\n")
    empty = command("run", str(file))
    assert (empty.returncode, "ran no tile program" in empty.stderr) == (2, True)


def test_a_script_may_have_the_name_of_a_file_of_tests(tmp_path: Path) -> None:
    file = tmp_path / "test_attention.py"
    file.write_text("if __name__ == '__main__':\n    raise SystemExit('run as a script')\n")
    with pytest.raises(SystemExit):
        run_script(file)


def test_a_file_of_tests_that_imports_what_is_not_there_says_what(tmp_path: Path) -> None:
    file = tmp_path / "test_lonely.py"
    file.write_text("import pypto.language as pl\nimport lonely_library\n\ndef test_nothing(): ...\n")
    ran = command("run", str(file))
    assert ran.returncode == 2
    assert ran.stderr.strip().endswith("line 2: ModuleNotFoundError: No module named 'lonely_library'.")
