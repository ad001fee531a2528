"""One program under both runtimes, as users ask for it."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent

import pytest
from command import npuscope

ROOT = Path(__file__).resolve().parents[2]
PAIRS = ROOT / "benchmarks" / "runtime_pairs"
CHAIN = """
    import numpy as np
    import npuscope.tile as pl

    @pl.jit
    def steps(x: pl.Tensor[[16, 64], pl.FP32], n: pl.Out[pl.Tensor[[1, 8], pl.INT32]]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="count"):
            n[0:1, 0:8] = pl.cast(pl.mul(x[0:1, 0:8], 2.0), target_type=pl.INT32)
        {read}
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="again"):
            n[0:1, 0:8] = pl.cast(pl.mul(x[8:9, 0:8], 3.0), target_type=pl.INT32)
        return n

    steps(np.ones((16, 64), np.float32), np.zeros((1, 8), np.int32))
"""


def written(tmp_path: Path, read: str) -> Path:
    file = tmp_path / "steps.py"
    file.write_text(dedent(CHAIN).replace("{read}", read))
    return file


def test_many_small_tasks_gain_from_a_graph_that_the_host_builds() -> None:
    words = ("compare", "--runtimes", PAIRS / "benchmark_bgemm.py", "--json", "--", "--case", "Case1")
    found = json.loads(npuscope(*words).stdout)
    assert (found["tasks"], found["faster"], found["refused"]) == (128, "hbg", None)
    assert found["ratio"] == pytest.approx(found["hbg"]["device_wall_ns"] / found["tmr"]["device_wall_ns"], rel=1e-4)
    steps = found["steps"]
    assert steps[0]["wall_ns"] == found["tmr"]["device_wall_ns"]
    assert steps[-1]["wall_ns"] == found["hbg"]["device_wall_ns"]
    assert sum(step["change_ns"] for step in steps) == steps[-1]["wall_ns"] - steps[0]["wall_ns"]
    submitted = min(steps[:-1], key=lambda step: step["change_ns"])  # the last is the same for every program
    assert submitted["step"] == "no task waits until the device has submitted it"
    assert found["host"]["submits"] == 128
    # what each says alone is what they say side by side
    alone = json.loads(npuscope("simulate", words[2], "--runtime", "hbg", "--json", "--", "--case", "Case1").stdout)
    assert (alone["runtime"], alone["wall_ns"]) == ("hbg", found["hbg"]["run_ns"])


def test_what_only_the_price_of_a_call_would_decide_is_undecided(tmp_path: Path) -> None:
    """Two tasks: of what the walls differ by most is what a call pays, known from far larger graphs alone."""
    found = json.loads(npuscope("compare", "--runtimes", written(tmp_path, ""), "--json").stdout)
    walls, runs = (abs(found["hbg"][of] - found["tmr"][of]) for of in ("device_wall_ns", "run_ns"))
    assert runs < walls - runs
    assert found["faster"] == "undecided"


def test_a_program_that_only_one_runtime_takes_says_why(tmp_path: Path) -> None:
    file = written(tmp_path, "rows = pl.read(n, [0, 0])")
    told = npuscope("compare", "--runtimes", file)
    assert told.returncode == 0, told.stderr
    assert "Only tmr runs it" in told.stdout
    assert "the orchestration reads n, which the task count writes" in told.stdout
    alone = npuscope("simulate", file, "--runtime", "hbg")
    assert alone.returncode == 2
    assert "steps.py, line 9:" in alone.stderr
