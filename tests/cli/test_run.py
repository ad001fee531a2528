"""`npuscope run`: somebody's tile script, as it is, through the real entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import npuscope

SCALE = """
import numpy as np
import pypto.language as pl
from golden import TensorSpec, run_jit


@pl.jit
def scale(x: pl.Tensor[[64, 128], pl.FP32], out: pl.Out[pl.Tensor[[64, 128], pl.FP32]]):
    for i in pl.parallel(0, 64, 16):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="double"):
            rows = x[i : i + 16, :]
            out[i : i + 16, :] = pl.add(rows, rows)
    return out


def golden(tensors):
    tensors["out"][:] = tensors["x"] * FACTOR


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--factor", type=float, default=2.0)
    FACTOR = np.float32(parser.parse_args().factor)
    specs = [
        TensorSpec("x", [64, 128], np.float32, init_value=lambda: np.arange(64 * 128.0).reshape(64, 128)),
        TensorSpec("out", [64, 128], np.float32, is_output=True),
    ]
    result = run_jit(fn=scale, specs=specs, golden_fn=golden, rtol=0, atol=0)
    if not result.passed:
        print(result.error)
        raise SystemExit(1)
"""


@pytest.fixture
def scale(tmp_path: Path) -> Path:
    (tmp_path / "scale.py").write_text(SCALE)
    return tmp_path / "scale.py"


def test_a_script_runs_as_it_is_and_says_what_it_did(scale: Path) -> None:
    ran = npuscope("run", scale)
    assert ran.returncode == 0
    assert "[RUN]   'out' PASS" in ran.stdout
    assert "4 tasks with 4 blocks of 1 kernel" in ran.stdout
    assert "PASS: the numbers are those of the golden" in ran.stdout


def test_a_script_runs_with_other_settings(scale: Path) -> None:
    assert npuscope("run", scale, "--set", "factor=2").returncode == 0
    other = npuscope("run", scale, "--set", "factor=3")
    assert other.returncode == 1
    assert "'out' FAIL" in other.stdout
    unknown = npuscope("run", scale, "--set", "NOPE=1")
    assert unknown.returncode == 2
    assert "no option, constant, field or environment variable NOPE" in unknown.stderr


def test_json_is_all_that_is_printed_and_keeps_its_contract(scale: Path) -> None:
    told = json.loads(npuscope("run", scale, "--json").stdout)
    assert told["passed"] is True
    assert told["tasks"] == 4
    # 4 tasks read and write 16 x 128 fp32 each
    nbytes = 64 * 128 * 4
    assert told["kernels"] == {
        "double": {
            "area": "other", "unit": "AIV", "tasks": 4, "blocks": 4, "ops": 12, "flops": 64 * 128, "gm_read": nbytes,
            "gm_written": nbytes, "waits": 0,
        }
    }  # fmt: skip
    assert set(told["edges"]) == {"creator", "raw", "waw", "explicit"}
    assert told["notices"] == []


def test_a_golden_that_does_not_hold_is_exit_1_and_names_the_op_that_wrote(scale: Path) -> None:
    ran = npuscope("run", scale, "--", "--factor", "3")
    assert ran.returncode == 1
    assert "FAIL: the numbers are not those of the golden" in ran.stdout
    assert f"{scale.name}:{1 + SCALE[: SCALE.index('pl.add')].count(chr(10))}" in ran.stdout


@pytest.mark.parametrize(
    "ending",
    [
        "assert result.passed, result.error",
        "raise SystemExit(result.error)",
        "raise SystemExit(2)",
        "raise RuntimeError(result.error)",
        "",
    ],
)
@pytest.mark.parametrize("command", [("run",), ("run", "--json"), ("graph", "--values")])
def test_a_wrong_number_is_exit_1_however_the_script_ends(scale: Path, ending: str, command: tuple[str, ...]) -> None:
    scale.write_text(
        SCALE.replace(
            "    if not result.passed:\n        print(result.error)\n        raise SystemExit(1)\n", f"    {ending}\n"
        )
    )
    assert "raise SystemExit(1)" not in scale.read_text()
    ran = npuscope(command[0], scale, *command[1:], "--", "--factor", "3")
    assert ran.returncode == 1
    assert "FAIL" in ran.stdout or json.loads(ran.stdout)["passed"] is False
    assert "Traceback" not in ran.stderr


def test_a_number_that_the_script_itself_finds_wrong_is_exit_1(scale: Path) -> None:
    own = """    y = np.zeros((64, 128), np.float32)
    scale(np.ones((64, 128), np.float32), y)
    assert (y == FACTOR).all(), 'off'
"""
    scale.write_text(SCALE[: SCALE.index("    specs =")] + own)
    assert npuscope("run", scale).returncode == 0
    ran = npuscope("run", scale, "--", "--factor", "3")
    assert ran.returncode == 1
    assert ran.stderr.startswith("npuscope: ")
    assert "AssertionError: off" in ran.stderr
    told = npuscope("run", scale, "--json", "--", "--factor", "3")
    assert told.returncode == 1
    assert "AssertionError: off" in json.loads(told.stdout)["failures"][0]


def test_the_scripts_own_usage_error_is_its_exit_code(scale: Path) -> None:
    ran = npuscope("run", scale, "--", "--no-such-option")
    assert ran.returncode == 2
    assert "unrecognized arguments: --no-such-option" in ran.stderr


@pytest.mark.parametrize(
    ("edit", "line", "sentence"),
    [
        (("rows, rows", "rows, x"), "pl.add(rows, x)", "pl.add: shapes [16, 128] FP32 and [64, 128] FP32"),
        (("x[i : i + 16, :]", "x[i : i + 99, :]"), "x[i : i + 99", "outside x of shape [64, 128]"),
        (
            ("pl.add(", "pl.addd("),
            "pl.addd(",
            "pl.addd is not supported by npuscope. The nearest name it has is pl.add.",
        ),
        (("FACTOR = np", "FACTOR = nope"), "FACTOR = nope", "NameError: name 'nope' is not defined"),
        (("def golden(tensors):", "def golden(tensors:"), "def golden", "SyntaxError"),
    ],
)
def test_a_mistake_is_one_sentence_with_the_users_line(
    scale: Path, edit: tuple[str, str], line: str, sentence: str
) -> None:
    text = SCALE.replace(*edit)
    scale.write_text(text)
    ran = npuscope("run", scale)
    assert ran.returncode in (1, 2)
    said = ran.stdout + ran.stderr
    assert sentence in said
    assert "Traceback" not in said
    number = 1 + text[: text.index(line)].count("\n")
    assert f"line {number}" in said or f"{scale.name}:{number}" in said


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"x = 1\n", "the script ran no tile program"),
        (b"import pypto.language as pl\n@pl.jit.inline\ndef part(): ...\n", "it only defines parts of others (part)"),
        (b"\x00\x01\xff", "SyntaxError"),
        (b"import sys; sys.exit(3)\n", ""),
        (b"import nowhere_at_all\n", "ModuleNotFoundError: No module named 'nowhere_at_all'"),
        (b"import pypto.language as pl\npl.add(1, 2)\n", "inside a @pl.jit function"),
        (
            b"import subprocess, sys\nsubprocess.run([sys.executable, 'other.py'], check=True)\n",
            "the script ran no tile program itself: it starts other.py, a process with PyPTO itself",
        ),
    ],
)
def test_what_is_no_tile_program_is_said_in_a_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    (tmp_path / "script.py").write_bytes(content)
    ran = npuscope("run", tmp_path / "script.py")
    assert ran.returncode in (2, 3)
    assert sentence in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("path", ["no_such_file.py", "."])
def test_a_path_that_is_no_file(tmp_path: Path, path: str) -> None:
    ran = npuscope("run", tmp_path / path)
    assert ran.returncode == 2
    assert "no such file" in ran.stderr or "not a Python file" in ran.stderr


def test_old_spellings_run_with_a_note_where_they_decide_tasks(tmp_path: Path) -> None:
    today = 'pl.at(level=pl.Level.CORE_GROUP, name_hint="double")'
    for old, noted in (("pl.incore()", False), ("pl.auto_incore()", True)):
        (tmp_path / "old.py").write_text(SCALE.replace(today, old))
        ran = npuscope("run", tmp_path / "old.py")
        assert ran.returncode == 0
        assert ("note: pl.auto_incore() was removed in 2026-06" in ran.stdout) is noted
        assert "scale_incore_0" in ran.stdout


def test_two_versions_draw_the_same_inputs(tmp_path: Path) -> None:
    """A script that draws without a seed: only what was edited differs."""
    text = (
        "import numpy as np\nimport pypto.language as pl\nfrom golden import TensorSpec, run_jit\n\n\n@pl.jit\n"
        "def f(x: pl.Tensor[[8, 16], pl.FP32], y: pl.Out[pl.Tensor[[8, 16], pl.FP32]]):\n"
        "    with pl.at(level=pl.Level.CORE_GROUP):\n        y[:] = pl.add(x, 1.0)\n    return y\n\n\n"
        "drawn = TensorSpec('x', [8, 16], np.float32, init_value=lambda: np.random.randn(8, 16))\n"
        "run_jit(fn=f, specs=[drawn, TensorSpec('y', [8, 16], np.float32, is_output=True)])\n"
    )
    here, there = tmp_path / "here.py", tmp_path / "there.py"
    here.write_text(text)
    there.write_text(text.replace("pl.add(x, 1.0)", "pl.add(x, 3.0)"))
    assert npuscope("run", here, "--against", here).returncode == 0
    changed = npuscope("run", here, "--against", there)
    assert changed.returncode == 1
    assert "y differs first" in changed.stdout
    assert "1 of 2 tensors differ" in changed.stdout
