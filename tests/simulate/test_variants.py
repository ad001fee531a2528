"""A sweep that is killed: what was finished is not run again, what was not is run, and no process is left over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command import npuscope

from npuscope.simulate.variants import Variant, outcome

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


time.sleep(float(os.environ.get("WHILE", "0")))
program(np.zeros((256, 256), np.float32), np.zeros((256, 256), np.float32))
if "RECORDED" in os.environ:
    with open(os.environ["RECORDED"], "a") as file:
        file.write(f"ROWS={ROWS} TURNS={TURNS}\\n")
"""
GRID = ("--set", "ROWS=8,16,32,64", "--set", "TURNS=1,2,3", "--jobs", "2", "--no-why", "--json")


def waited(until: float, happened: object) -> None:
    assert callable(happened)
    end = time.monotonic() + until
    while not happened():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def children(process: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="looks for processes in /proc")
def test_a_killed_sweep_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a sweep of twelve variants in two processes, killed when some of them are done
    file, results, recorded = tmp_path / "add.py", tmp_path / "results.jsonl", tmp_path / "recorded.txt"
    file.write_text(PROGRAM)
    words = [sys.executable, "-m", "npuscope", "sweep", str(file), *GRID, "--results", str(results)]
    sweep = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "WHILE": "0.2"}
    )
    try:
        waited(600, lambda: results.exists() and results.read_bytes().count(b"\n") >= 4)
        workers = children(sweep.pid)
    finally:
        os.kill(sweep.pid, signal.SIGKILL)
        sweep.wait()
    # THEN its workers are gone too
    waited(600, lambda: not any(map(alive, workers)))
    kept = results.read_bytes()
    finished = [json.loads(line)["variant"] for line in kept.splitlines(keepends=True) if line.endswith(b"\n")]
    assert 4 <= len(finished) < 12
    # WHEN it is run again
    monkeypatch.setenv("RECORDED", str(recorded))
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
        assert outcome(Variant(line["variant"], str(file), settings=settings)).as_dict() == line
