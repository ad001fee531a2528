"""The programs that come with npuscope: listed, taken by name by every command, copied to be changed."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from command import npuscope

from npuscope.models import FOLDER, file_of, models, needs


def test_every_program_is_listed_with_what_it_says_of_itself() -> None:
    listed = npuscope("models", "--json")
    rows = {row["name"]: row for row in json.loads(listed.stdout)}
    assert {"basics/gemm", "qwen3_14b/decode_layer", "qwen3_32b_tilelet"} <= rows.keys()
    assert "qwen3_14b/layer" not in rows  # a part of others, nothing to run
    assert all(row["about"] and Path(row["file"]).is_file() for row in rows.values())
    assert "model:basics/gemm " in npuscope("models").stdout


def test_a_command_takes_a_model_by_name(tmp_path: Path) -> None:
    by_name = npuscope("simulate", "model:basics/gemm", "--no-report", "--json")
    by_file = npuscope("simulate", file_of("model:basics/gemm"), "--no-report", "--json")
    assert by_name.returncode == 0, by_name.stderr
    named, filed = json.loads(by_name.stdout), json.loads(by_file.stdout)
    assert Path(named.pop("file")).resolve() == Path(filed.pop("file"))  # a name's is said as seen from here
    assert named == filed


def test_words_after_two_dashes_are_the_programs_own(tmp_path: Path) -> None:
    program = tmp_path / "echo.py"
    program.write_text("import sys\nprint(sys.argv[1:])\n")
    assert "['model:basics/gemm']" in npuscope("run", program, "--", "model:basics/gemm").stdout


def test_a_wrong_name_is_refused_with_the_nearest() -> None:
    done = npuscope("check", "model:basics/gem")
    assert done.returncode == 2
    assert done.stderr == (
        "npuscope: no model 'basics/gem'. Did you mean model:basics/gemm? `npuscope models` lists them.\n"
    )


def test_a_copy_runs_by_itself_and_overwrites_nothing(tmp_path: Path) -> None:
    done = npuscope("models", "copy", "qwen3_32b_tilelet", tmp_path / "mine")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "mine").iterdir()) == [
        "qwen3_32b_reference.py",
        "qwen3_32b_tilelet.py",
        "qwen3_32b_tilelet_as_found.py",
    ]
    ran = npuscope("simulate", tmp_path / "mine" / "qwen3_32b_tilelet.py", "--no-report")
    assert ran.returncode == 0, ran.stderr
    again = npuscope("models", "copy", "qwen3_32b_tilelet", tmp_path / "mine")
    assert again.returncode == 2
    assert "is there already" in again.stderr


def test_a_program_with_a_folder_of_its_own_takes_it_along() -> None:
    assert needs(Path(file_of("model:qwen3_14b/decode_layer"))) == (Path("qwen3_14b"),)


def test_they_can_be_imported() -> None:
    module = importlib.import_module("npuscope.models.basics.softmax")
    assert module.__file__ == str(FOLDER / "basics" / "softmax.py")
    assert len(models()) >= 14
