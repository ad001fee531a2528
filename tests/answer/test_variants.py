"""A sweep that is killed: what was finished is not run again, what was not is run, and no process is left over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import npuscope
from patience import becomes, is_alive

from npuscope.answer.alone import alone
from npuscope.answer.variant import Variant
from npuscope.answer.variants import outcome, outcomes, run_outcomes

# Twelve variants that each take a while to record; each leaves a line in a file when it is.
PROGRAM = """import os
import time

import numpy as np

import npuscope.tile as pl

ROWS, TURNS = 16, 1


@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for i in pl.parallel(0, 256, ROWS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="add"):
            part = pl.slice(x, [ROWS, 256], [i, 0])
            for _ in pl.range(TURNS):
                part = pl.add(part, 1.0)
            y = pl.assemble(y, part, [i, 0])
    return y


if os.path.exists(f"{__file__}.slow"):
    time.sleep(0.2)
program(np.zeros((256, 256), np.float32), np.zeros((256, 256), np.float32))
with open(f"{__file__}.recorded", "a") as file:
    file.write(f"ROWS={ROWS} TURNS={TURNS}\\n")
"""
GRID = ("--set", "ROWS=8,16,32,64", "--set", "TURNS=1,2,3", "--jobs", "2", "--no-why", "--json")


def children(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for processes in /proc")
def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path) -> None:
    # GIVEN a sweep of twelve variants in two processes, killed when some of them are done
    file, results, recorded = tmp_path / "add.py", tmp_path / "results.jsonl", tmp_path / "add.py.recorded"
    file.write_text(PROGRAM)
    (tmp_path / "add.py.slow").touch()
    words = [sys.executable, "-m", "npuscope", "sweep", str(file), *GRID, "--results", str(results)]
    sweep = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert becomes(lambda: results.exists() and results.read_bytes().count(b"\n") >= 4)
        workers = children(sweep.pid)
    finally:
        os.kill(sweep.pid, signal.SIGKILL)
        sweep.wait()
    # THEN its workers are gone too
    assert becomes(lambda: not any(map(is_alive, workers)))
    kept = results.read_bytes()
    finished = [json.loads(line)["variant"] for line in kept.splitlines(keepends=True) if line.endswith(b"\n")]
    assert 4 <= len(finished) < 12
    # WHEN it is run again
    (tmp_path / "add.py.slow").unlink()
    recorded.unlink()
    again = npuscope("sweep", file, *GRID, "--results", results)
    # THEN what was finished stands as it stood, and only the others were run, each once
    assert again.returncode == 0, again.stderr
    assert results.read_bytes().startswith(kept[: kept.rindex(b"\n") + 1])
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    everything = {f"ROWS={rows} TURNS={turns}" for rows in (8, 16, 32, 64) for turns in (1, 2, 3)}
    assert sorted(line["variant"] for line in lines) == sorted(everything)
    assert sorted(recorded.read_text().splitlines()) == sorted(everything - set(finished))
    # and all say what a run that nobody interrupts says
    for line in lines:
        settings = tuple((name, value) for name, _, value in (part.partition("=") for part in line["variant"].split()))
        alone = outcome(Variant(line["variant"], str(file), settings=settings)).as_dict()
        assert json.loads(json.dumps(alone)) == line


# ---- results that are kept are those of the program as it is

AROUND = """import os
from math import prod

import numpy as np

import npuscope.tile as pl
from parts import sizes

{more}

@pl.jit
def program(x: pl.Tensor, y: pl.Out[pl.Tensor]):
    for i in pl.parallel(0, 256, sizes.ROWS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="add"):
            y = pl.assemble(y, pl.add(pl.slice(x, [sizes.ROWS, 256], [i, 0]), 1.0), [i, 0])
    return y


program(np.zeros((256, 256), np.float32), np.zeros((256, 256), np.float32))
"""
RUNS = "with open(__file__ + '.runs', 'a') as file: file.write('x')"


class Kept:
    """A program with a package of its own beside it, and the file of its results."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.file, self.results, self.sizes = folder / "add.py", folder / "kept.jsonl", folder / "parts" / "sizes.py"
        self.sizes.parent.mkdir()
        self.sizes.write_text("from parts.deep.one import SIXTEEN\nROWS = SIXTEEN\n")
        self.deep = self.sizes.parent / "deep" / "one.py"
        self.deep.parent.mkdir()
        self.deep.write_text("SIXTEEN = 16\n")
        self.file.write_text(AROUND.format(more=f"{RUNS}\n{more}"))

    def tasks(self) -> int | None:
        (one,) = outcomes([Variant("a", str(self.file))], self.results, jobs=1)
        assert one.error is None
        return one.tasks

    @property
    def runs(self) -> int:
        return len(self.file.with_suffix(".py.runs").read_text())


def test_a_result_is_kept_while_nothing_around_its_program_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, "os.environ.get('MY_TILE')")
    assert [kept.tasks() for _ in range(3)] == [16, 16, 16]
    assert kept.runs == 1
    # a variable and a module that it does not read
    monkeypatch.setenv("ANOTHER", "1")
    (tmp_path / "parts" / "other.py").write_text("1")
    assert kept.tasks() == 16
    assert kept.runs == 1


def test_a_module_of_a_subpackage_that_changes_is_run_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert kept.tasks() == 16
    kept.deep.write_text("SIXTEEN = 64  # longer: Python looks at times in seconds, and at sizes\n")
    assert kept.tasks() == 4
    kept.sizes.write_text("ROWS = 32\n")
    assert kept.tasks() == 8
    assert kept.runs == 3
    # and what it was before is still known
    kept.sizes.write_text("from parts.deep.one import SIXTEEN\nROWS = SIXTEEN\n")
    kept.deep.write_text("SIXTEEN = 16\n")
    assert kept.tasks() == 16
    assert kept.runs == 3


@pytest.mark.parametrize(
    "reads",
    [
        "sizes.ROWS = int(os.environ.get('MY_TILE', 16))",
        "sizes.ROWS = int(os.getenv('MY_TILE') or 16)",
        "sizes.ROWS = 32 if 'MY_TILE' in os.environ else 16",
        "sizes.ROWS = int(dict(os.environ).get('MY_TILE', 16))",
        "sizes.ROWS = prod(int(value) for name, value in os.environ.items() if name == 'MY_TILE') * 16 or 16",
        "from os import environ\nsizes.ROWS = int(environ.setdefault('MY_TILE', '16'))",
    ],
)
def test_a_variable_that_the_program_reads_and_that_changes_is_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: str
) -> None:
    kept = Kept(tmp_path, reads)
    monkeypatch.delenv("MY_TILE", raising=False)
    assert kept.tasks() == 16
    monkeypatch.setenv("MY_TILE", "2" if "prod" in reads else "32")
    assert kept.tasks() == 8
    assert kept.tasks() == 8
    monkeypatch.delenv("MY_TILE")
    assert kept.tasks() == 16
    assert kept.runs == 2


def test_an_error_is_kept_until_what_it_came_of_changes(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.deep.write_text("SIXTEEN = 1 // 0\n")
    for _ in range(2):
        (one,) = outcomes([Variant("a", str(kept.file))], kept.results, jobs=1)
        assert "ZeroDivisionError" in str(one.error)
    assert not kept.file.with_suffix(".py.runs").exists()
    kept.deep.write_text("SIXTEEN = 16\n")
    assert kept.tasks() == 16


def test_a_variant_that_ends_its_process_costs_its_own_answer(tmp_path: Path) -> None:
    # GIVEN a program that crashes the interpreter with one of its settings
    file = tmp_path / "add.py"
    file.write_text(PROGRAM.replace("if os.path", "if ROWS == 16:\n    os.abort()\nif os.path"))
    results = tmp_path / "results.jsonl"
    for _ in range(2):
        # WHEN three settings are swept, and swept again, THEN the others have a time, and it says how it ended
        done = npuscope("sweep", file, "--set", "ROWS=8,16,32", "--no-why", "--json", "--results", results)
        assert done.returncode == 0, done.stderr
        told = {row["variant"]: row for row in json.loads(done.stdout)}
        assert told["ROWS=8"]["wall_ns"] > 0
        assert told["ROWS=32"]["wall_ns"] > 0
        assert told["ROWS=16"]["error"].startswith("it was ended by SIGABRT")
        # and only what has a result is kept
        assert len(results.read_text().splitlines()) == 2


def test_who_ends_the_server_takes_nobody_along(tmp_path: Path) -> None:
    # GIVEN a program that kills npuscope's helper process with one of its settings
    file = tmp_path / "add.py"
    file.write_text(PROGRAM.replace("if os.path", "if ROWS == 16:\n    os.kill(os.getppid(), 9)\nif os.path"))
    # WHEN all are swept THEN the others have a time
    with alone(jobs=2) as run:
        variants = [Variant(f"{n}", str(file), settings=(("ROWS", f"{n}"),)) for n in (8, 16, 32, 64)]
        found = {one.variant: one for one in run_outcomes(run, variants)}
    assert found["16"].error is not None
    assert "helper process was killed" in found["16"].error
    assert all(found[name].wall_ns for name in ("8", "32", "64"))
