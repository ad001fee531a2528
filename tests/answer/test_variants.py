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

from npuscope.answer.rank import answers_of
from npuscope.answer.request import Request

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
    finished = [json.loads(line)["candidate"] for line in kept.splitlines(keepends=True) if line.endswith(b"\n")]
    assert 4 <= len(finished) < 12
    # WHEN it is run again
    (tmp_path / "add.py.slow").unlink()
    recorded.unlink()
    again = npuscope("sweep", file, *GRID, "--results", results)
    # THEN what was finished stands as it stood, and only the others were run, each once, and the first once more
    assert again.returncode == 0, again.stderr
    assert results.read_bytes().startswith(kept[: kept.rindex(b"\n") + 1])
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    everything = {f"ROWS={rows} TURNS={turns}" for rows in (8, 16, 32, 64) for turns in (1, 2, 3)}
    assert sorted(line["candidate"] for line in lines) == sorted(everything)
    assert sorted(recorded.read_text().splitlines()) == sorted(everything - set(finished[1:]))
    # and all say what a run that nobody interrupts says
    for row in json.loads(again.stdout)[:2]:
        request = Request(str(file), settings=tuple(row["settings"].items()), name=row["variant"])
        (fresh,) = answers_of([request], jobs=1)
        assert (fresh.wall_ns, fresh.bound, fresh.key) == (row["wall_ns"], row["bound"], row["key"])


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
