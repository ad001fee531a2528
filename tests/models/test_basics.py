"""The teaching programs: each passes its golden and has the tasks its page of text says."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from command import npuscope
from tile_programs import MODELS, counts, load, recording

WANTED = {
    "softmax": {"softmax": (16, 16, "AIV")},  # 512 rows / 32, a task each
    "rms_norm": {"rms_norm": (8, 8, "AIV")},  # 128 rows / 16
    "rope": {"rope": (1, 16, "AIV")},  # one task, a block per token
    "gemm": {"gemm": (1, 16, "AIC")},  # 4 x 4 tiles of C
    "layer_norm": {"statistics": (1, 16, "AIV"), "apply": (1, 16, "AIV")},  # 256 rows / 16, two kernels
    "topk": {"topk": (1, 4, "AIV")},  # 32 rows / 8
}


@pytest.mark.parametrize("name", sorted(WANTED))
def test_a_teaching_program_passes_its_golden_with_the_tasks_it_speaks_of(name: str) -> None:
    assert counts(recording(load(f"basics/{name}").run())) == WANTED[name]


def test_every_teaching_program_is_tested() -> None:
    assert {path.stem for path in (MODELS / "basics").glob("*.py")} == set(WANTED)


def test_a_wrong_golden_fails_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    softmax = load("basics/softmax")
    monkeypatch.setattr(softmax, "golden", lambda tensors: np.copyto(tensors["y"], 0.5))
    assert not softmax.run().passed


def test_a_teaching_program_runs_as_a_script_and_by_the_command() -> None:
    alone = subprocess.run([sys.executable, MODELS / "basics" / "rope.py"], capture_output=True, text=True, timeout=600)
    assert (alone.returncode, alone.stderr) == (0, "")
    assert "PASS" in alone.stdout
    commanded = npuscope("run", MODELS / "basics" / "rope.py")
    assert (commanded.returncode, commanded.stderr) == (0, "")
    assert "rope" in commanded.stdout
