"""`judge` and `tune` on a Ray cluster say what they say in processes of this machine, and one bad candidate costs its
own answer there, too."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import npuscope

pytestmark = pytest.mark.full

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install -e '.[ray]'")
GEMM, SOFTMAX = "model:basics/gemm", Path(__file__).resolve().parents[2] / "models" / "basics" / "softmax.py"
RESULTS = ("verdict", "right", "time", "tasks", "blocks", "bound", "findings", "kernels")


def test_answers_are_those_of_processes_and_a_crash_costs_one(tmp_path: Path) -> None:
    # GIVEN a good program that asks for a variable and a file of the folder that the user is in, and two bad ones
    asks = tmp_path / "asks.py"
    text = SOFTMAX.read_text()
    head = "import os\nassert os.environ['SPICE'] == 'salt'\n"
    asks.write_text(text.replace("import numpy as np", f"{head}import numpy as np", 1))
    (tmp_path / "crash.py").write_text(text.replace("@pl.jit", "import os\nos.abort()\n\n\n@pl.jit", 1))
    (tmp_path / "exit.py").write_text("import os\nos._exit(3)\n")
    files = [asks, tmp_path / "crash.py", tmp_path / "exit.py"]

    def answers(engine: str) -> tuple[int, list[dict[str, object]]]:
        results = tmp_path / f"{engine}.jsonl"
        words = ("--engine", engine, "--jobs", "2", "--results", results, "--json")
        done = npuscope("judge", *files, *words, SPICE="salt")
        assert done.stderr == ""
        assert len(results.read_text().splitlines()) == len(files) - 1  # a crash may be chance
        return done.returncode, json.loads(done.stdout)["answers"]

    # THEN a cluster says what this machine says
    code, here = answers("processes")
    assert [one["verdict"] for one in here] == ["good", "crashed", "exited"]
    there = answers("ray")
    assert there[0] == code == 1
    for a, b in zip(here, there[1], strict=True):
        assert {name: a.get(name) for name in RESULTS} == {name: b.get(name) for name in RESULTS}


def test_tune_finds_the_same_and_one_that_crashes_is_dropped(tmp_path: Path) -> None:
    from npuscope.models import file_of

    file = tmp_path / "gemm.py"
    text = Path(file_of(GEMM)).read_text()
    file.write_text(text.replace("@pl.jit", "if TILE == 64:\n    import os\n    os.abort()\n\n\n@pl.jit", 1))
    words = ("tune", file, "--set", "TILE=32,64,128", "--jobs", "2", "--json")
    here, there = (json.loads(npuscope(*words, "--engine", engine).stdout) for engine in ("processes", "ray"))
    assert (there["simulated"], there["dropped"]) == (here["simulated"], here["dropped"]) == (2, 1)
    assert there["best"] == here["best"]
    assert [one["passed"] for one in there["golden"]] == [True]
