"""`npuscope history` and `gate --history` as a user types them: measured folders, and commits simulated."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from add_program import ADD
from command import npuscope
from noisy_runs import write_runs


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Eight commits, three runs of each; the fifth makes a kernel 10 % slower."""
    for n in range(8):
        slower = 1.1 if n >= 4 else 1.0
        write_runs(tmp_path / "runs" / f"{n:03}-rev{n}", seed=n, count=3, noise=0.01, MatMulV2=slower)
    subjects = "".join(f"rev{n} {'make tiles larger' if n == 4 else 'tidy'}\n" for n in range(8))
    (tmp_path / "runs" / "commits.txt").write_text(subjects)
    return tmp_path / "runs"


def test_a_folder_of_runs_says_what_changed_and_who_did_it(measured: Path, tmp_path: Path) -> None:
    told = npuscope("history", measured, "--html", tmp_path / "plot.html")
    assert (told.returncode, told.stderr) == (0, "")
    assert "rev4" in told.stdout.splitlines()[0]
    assert "make tiles larger" in told.stdout
    page = (tmp_path / "plot.html").read_text()
    assert "MatMulV2 changed with rev4" in page
    data = json.loads(npuscope("history", measured, "--json").stdout)
    kernel = [row for row in data["changes"] if row["series"] == "MatMulV2"]
    assert [(row["commit"], row["verdict"]) for row in kernel] == [("rev4", "slower")]
    assert {row["series"] for row in data["changes"]} == {"MatMulV2", "wall time"}
    first, last = data["bands"]["MatMulV2"]
    assert first["high_ns"] < last["low_ns"]


def test_a_gate_holds_the_newest_runs_against_the_last_stretch(measured: Path, tmp_path: Path) -> None:
    as_before = write_runs(tmp_path / "same", seed=50, count=3, MatMulV2=1.1)
    assert npuscope("gate", as_before, "--history", measured).returncode == 0
    slower = write_runs(tmp_path / "slower", seed=51, count=3, MatMulV2=1.25)
    told = npuscope("gate", slower, "--history", measured)
    assert told.returncode == 1
    assert "core_us of MatMulV2" in told.stdout
    # without captures the newest commit of the history is the one that is judged
    assert npuscope("gate", "--history", measured).returncode == 0


def git(repo: Path, *words: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(repo), *who, *words], check=True, capture_output=True)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A program over five commits: one changes its tiles, one breaks it, one mends it."""
    place = tmp_path / "project"
    (place / "kernels").mkdir(parents=True)
    git(tmp_path, "init", "-q", str(place))
    texts = {
        "start": ADD,
        "rename a comment": ADD + "# a comment\n",
        "larger tiles": ADD.replace("ROWS = 16", "ROWS = 64"),
        "oops": ADD.replace("ROWS = 16", "ROWS = 1024"),
        "back to small tiles": ADD,
    }
    for subject, text in texts.items():
        (place / "kernels" / "add.py").write_text(text)
        git(place, "add", "-A")
        git(place, "commit", "-qm", subject)
    return place


def test_commits_are_simulated_without_touching_the_checkout(repo: Path, tmp_path: Path) -> None:
    (repo / "kernels" / "add.py").write_text("what I am working on")
    words = ("history", tmp_path / "sim", "--simulate", repo, "kernels/add.py", "--since", "HEAD~4")
    told = npuscope(*words)
    assert told.returncode == 0, told.stderr
    # THEN what changed is named with its commit, and what does not run with its reason
    assert "all simulated, so without noise" in told.stdout
    assert "larger tiles" in told.stdout
    assert "commits without a run" in told.stdout
    assert (repo / "kernels" / "add.py").read_text() == "what I am working on"
    kept = (tmp_path / "sim" / "simulated.jsonl").read_text()
    assert len(kept.splitlines()) == 5
    # AND a second time nothing is simulated again, not even after an interrupt in the middle of a line
    (tmp_path / "sim" / "simulated.jsonl").write_text(kept[: kept.rindex("{") + 20])
    data = json.loads(npuscope(*words, "--json").stdout)
    again = (tmp_path / "sim" / "simulated.jsonl").read_text()
    assert again == kept
    assert data["exact"] is True
    walls = [row["wall_ns"] for row in data["commits"]]
    assert walls[0] == walls[1] == walls[4] != walls[2]
    assert walls[3] is None
    assert [row["subject"] for row in data["changes"] if row["series"] == "wall time"] == [
        "larger tiles",
        "back to small tiles",
    ]


def test_a_simulated_change_has_one_probability_in_history_and_rank(tmp_path: Path) -> None:
    """Two saves of a program, as two commits and as two files."""
    program = """import numpy as np

import npuscope.tile as pl

N, ROWS = 1024, 64


@pl.jit
def scale(a: pl.Tensor[[N, 256], pl.FP32], b: pl.Out[pl.Tensor[[N, 256], pl.FP32]]):
    for n in pl.parallel(0, N, ROWS):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scale"):
            b[n : n + ROWS, :] = pl.add(a[n : n + ROWS, :], a[n : n + ROWS, :])
    return b


scale(np.zeros((N, 256), np.float32), np.zeros((N, 256), np.float32))
"""
    repo = tmp_path / "repo"
    git(tmp_path, "init", "-q", str(repo))
    saves = [program, program.replace("ROWS = 1024, 64", "ROWS = 1024, 32")]
    for number, text in enumerate(saves):
        (tmp_path / f"save{number}.py").write_text(text)
        (repo / "scale.py").write_text(text)
        git(repo, "add", "-A")
        git(repo, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", f"save {number}")
    data = json.loads(
        npuscope("history", tmp_path / "h", "--simulate", repo, "scale.py", "--since", "HEAD~1", "--json").stdout
    )
    (wall,) = (row for row in data["changes"] if row["series"] == "wall time")
    ranked = json.loads(npuscope("rank", tmp_path / "save0.py", tmp_path / "save1.py", "--json").stdout)
    (versus,) = (row["against_first"] for row in ranked if row["variant"] == "save1.py")
    assert wall["ratio"] == pytest.approx(versus["ratio"], rel=1e-4)
    assert wall["probability_faster"] == pytest.approx(versus["probability_faster"], abs=1e-3)
    assert wall["verdict"] == versus["verdict"]
