"""What Windows and macOS lack is not used there. Only Linux runs our tests, so their lacks are made here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from sessions import ROOT

AS_ON_WINDOWS = (sys.executable, str(ROOT / "tests/as_on_windows.py"))
AS_ON_MACOS = "import os\ndel os.pipe2, os.sched_getaffinity\n"


@pytest.mark.full
def test_commands_work_without_what_windows_lacks(tmp_path: Path) -> None:
    """`sweep --results` locks a file, `simulate` keeps compiled code in the profile, `judge` says that it cannot."""
    (tmp_path / "run.json").write_text('[{"ph": "X", "name": "matmul", "pid": 1, "tid": 1, "ts": 0, "dur": 5}]')
    works = ["report run.json", "check model:basics/gemm", "simulate model:basics/gemm"]
    works += ["sweep model:basics/gemm --set TILE=64,128 --jobs 1 --results kept.jsonl"] * 2
    commands = [*works, "judge model:basics/gemm"]
    words = [*AS_ON_WINDOWS, *commands]
    home = {**os.environ, "LOCALAPPDATA": str(Path.home() / ".cache")}
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, env=home)
    codes = [int(line.removeprefix("exit code ")) for line in run.stdout.splitlines() if line.startswith("exit code ")]
    assert codes == [*(0 for _ in works), 2], run.stdout + run.stderr
    assert "On Windows use WSL" in run.stderr
    assert len((tmp_path / "kept.jsonl").read_text().splitlines()) == 2


def test_jobs_run_without_what_macos_lacks(tmp_path: Path) -> None:
    """The server of jobs and the jobs are processes of their own: each loads sitecustomize.py."""
    (tmp_path / "sitecustomize.py").write_text(AS_ON_MACOS)
    script = (
        "import os, pool_jobs\n"
        "from npuscope.base.pool import Pool\n"
        "assert not hasattr(os, 'pipe2')\n"
        "with Pool(1, (), forks=False) as pool:\n"
        "    print(pool.ask(pool_jobs.double, 21).result())\n"
    )
    path = os.pathsep.join([str(tmp_path), str(ROOT / "tests")])
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert run.stdout == "42\n", run.stderr
