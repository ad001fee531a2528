"""Packages in a folder of PYTHONPATH that pip filled (`pip install --target`) are nobody's own program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_target_folder_of_pip_is_installed_and_any_other_folder_is_not(tmp_path: Path) -> None:
    for name in ("target", "mine"):
        (tmp_path / name / "torch").mkdir(parents=True)
    (tmp_path / "target/torch-2.0.dist-info").mkdir()
    code = "import sys; from npuscope.tile.record.sites import is_users; print(*map(is_users, sys.argv[1:]))"
    files = [str(tmp_path / name / "torch/a.py") for name in ("target", "mine", "target2")]
    paths = os.pathsep.join(str(tmp_path / name) for name in ("target", "mine"))
    command = [sys.executable, "-c", code, *files]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]
