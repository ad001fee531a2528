"""A compiler's build folder through the commands: memory, check, and simulate beside the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
from command import npuscope

from npuscope.answer.prediction import Prediction
from npuscope.answer.request import Request
from npuscope.time.per_line import line_times
from tests.assemblies import ROW, VIEW, allocated, binary, box, doubled, function, load, module, written

PROGRAM = """import numpy as np

import npuscope.tile as pl


@pl.jit
def program(x: pl.Tensor[[16, 256], pl.FP32], y: pl.Out[pl.Tensor[[16, 256], pl.FP32]]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="double"):
        for i in pl.range(4):
            row = x[:, i * 64 : i * 64 + 64]
            y = pl.assemble(y, pl.add(row, row), [0, i * 64])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="other"):
        y = pl.assemble(y, pl.mul(y[:, 0:64], 2.0), [0, 0])
    return y


program(np.zeros((16, 256), np.float32), np.zeros((16, 256), np.float32))
"""
OVERLAPPING = [
    VIEW, box("from", "%c0"), allocated("x__tile", ROW, 0, 16, 64), load("from", "x__tile"),
    allocated("y__tile", ROW, 2048, 16, 64), load("from", "y__tile"),
    allocated("z__tile", ROW, 8192, 16, 64), binary("tadd", "x__tile", "y__tile", "z__tile"),
]  # fmt: skip


def test_memory_of_a_folder_is_what_the_addresses_say(tmp_path: Path) -> None:
    build = written(tmp_path, double=doubled())
    done = npuscope("memory", build, "--kernel", "double", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["memory"]
    assert (row["kernel"], row["space"], row["used"]) == ("double", "Vec", 8192)
    assert [(buffer["address"], [tile["name"] for tile in buffer["tiles"]]) for buffer in row["buffers"]] == [
        (0, ["x"]),
        (4096, ["y"]),
    ]
    printed = npuscope("memory", build, "--kernel", "double", "--dump", "-").stdout
    assert "4 x range" in printed


def test_check_finds_live_tiles_that_share_bytes(tmp_path: Path) -> None:
    text = module(function("bad", "vector", OVERLAPPING))
    done = npuscope("check", written(tmp_path, bad=text, double=doubled()), "--json")
    assert done.returncode == 1
    (error,) = json.loads(done.stdout)["errors"]
    line = next(n for n, line in enumerate(text.splitlines(), 1) if "tload" in line and "%y__tile" in line)
    assert (error["id"], error["line"]) == ("overlapping-tiles", line)
    assert npuscope("check", written(tmp_path / "good", double=doubled())).returncode == 0


def test_a_program_is_timed_as_it_was_compiled(tmp_path: Path) -> None:
    """A compiled kernel that does its work twice takes longer; one that npuscope lowers alike takes the same."""
    (tmp_path / "program.py").write_text(PROGRAM)
    own = json.loads(npuscope("simulate", tmp_path / "program.py", "--json", "--no-report").stdout)

    def simulated(**kernels: str) -> Any:
        build = written(tmp_path / "_".join(kernels), **kernels)
        done = npuscope("simulate", tmp_path / "program.py", "--build", build, "--json", "--no-report")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    alike = simulated(double=doubled(result=0))
    assert alike["wall_ns"] == own["wall_ns"]
    assert alike["build"]["kernels"] == [{"kernel": "double", "timed": True}]
    assert alike["build"]["lowering"] == []
    twice = simulated(double=doubled(result=0, turns=8))
    assert twice["wall_ns"] > own["wall_ns"]
    found = {row["what"]: (row["compiler"], row["npuscope"]) for row in twice["build"]["lowering"]}
    assert found["instructions of AIV V"] == (8, 4)


def test_lines_are_the_programs_where_the_compiler_wrote_them(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    line = next(n for n, text in enumerate(PROGRAM.splitlines(), 1) if "row = x" in text)
    build = written(tmp_path, double=doubled(loc=f' loc("/somewhere/else/program.py":{line}:9)'))
    prediction = Prediction(Request(str(tmp_path / "program.py"), build=str(build)))
    rows = line_times(prediction.simulated).rows.filter(pl.col("core_ns") > 0)
    places = {(Path(file).name, at) for file, at in rows.select("file", "line").iter_rows()}
    assert ("program.py", line) in places
    assert any(name == "double.pto" for name, _ in places)


def test_what_is_not_known_of_a_kernel_is_said(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    unknown = doubled().replace("pto.tadd", "pto.tmystery")
    done = npuscope("simulate", tmp_path / "program.py", "--build", written(tmp_path, double=unknown), "--no-report")
    assert done.returncode == 0, done.stderr
    assert "pto.tmystery is not known" in done.stdout
    assert "no .pto, so npuscope's lowering stands in: other" in done.stdout


def test_bad_assembly_is_one_sentence_with_file_and_line(tmp_path: Path) -> None:
    text = doubled().replace("pto.tadd ins", "%% ins")
    line = next(n for n, one in enumerate(text.splitlines(), 1) if "%% ins" in one)
    done = npuscope("memory", written(tmp_path, double=text))
    assert done.returncode == 2
    assert f"double.pto, line {line}: is no op that can be read" in done.stderr


def test_two_kernels_of_one_name_are_not_chosen_from(tmp_path: Path) -> None:
    """A folder over two builds: copies of a kernel are the same, others are not."""
    (tmp_path / "program.py").write_text(PROGRAM)
    build = tmp_path / "build"
    written(build / "a", double=doubled()), written(build / "b", double=doubled())
    done = npuscope("simulate", tmp_path / "program.py", "--build", build, "--no-report")
    assert done.returncode == 0, done.stderr
    written(build / "b", double=doubled(turns=8))
    done = npuscope("simulate", tmp_path / "program.py", "--build", build)
    assert done.returncode == 2
    assert "has other kernels of one name: a/build_output/program/ptoas/double.pto and b/" in done.stderr
    assert "Name the folder of one build" in done.stderr


def test_assembly_is_no_program(tmp_path: Path) -> None:
    file = written(tmp_path, double=doubled()) / "ptoas" / "double.pto"
    done = npuscope("simulate", file)
    assert done.returncode == 2
    assert "not a Python file but what the compiler made of a kernel" in done.stderr
    assert npuscope("memory", file).returncode == 0


def test_tensors_are_the_programs_in_whatever_order_the_assembly_has_them(tmp_path: Path) -> None:
    """The compiler puts outputs first; what a task has made before is known of the right one."""
    (tmp_path / "program.py").write_text(PROGRAM)
    text = doubled().replace("%arg0: !pto.ptr<f32>", "%arg1: !pto.ptr<f32>, %arg0: !pto.ptr<f32>")
    prediction = Prediction(Request(str(tmp_path / "program.py"), build=str(written(tmp_path, double=text))))
    program = prediction.program
    own, compiled = (
        [access.argument for one in found["double", 0, "", 0].lowered.instructions for access in one.accesses]
        for found in (program.planned, program.compiled)
    )
    assert own == [0, 1]
    assert compiled[0] == own[0]
