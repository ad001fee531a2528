"""Several runs of A against several of B, and a gate that knows noise, as a user types them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from builders import write_kernel_table
from command import npuscope
from noisy_runs import KERNELS, row, write_runs


def paths(folder: Path) -> Sequence[Path]:
    return sorted(folder.iterdir())


def test_a_slower_kernel_is_named_and_the_others_are_left_out(tmp_path: Path) -> None:
    before, after = write_runs(tmp_path / "before", 1), write_runs(tmp_path / "after", 2, MatMulV2=1.1)
    # WHEN two folders of runs are compared
    told = npuscope("compare", before, "vs", after)
    # THEN the first line says who is slower, how much and how sure that is; the table has the one kernel
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("B is ")
    assert "slower" in told.stdout.splitlines()[0]
    assert "95% sure" in told.stdout.splitlines()[0]
    assert "1 kernel changed" in told.stdout
    assert "MatMulV2" in told.stdout
    assert "RmsNorm" not in told.stdout
    assert "3 other kernels of 4 compared" in told.stdout
    # AND runs named one by one say the same
    each = npuscope("compare", *paths(before), "vs", *paths(after), "--json")
    data = json.loads(each.stdout)
    assert data["total"]["verdict"] == "slower"
    assert [row["name"] for row in data["changed"]] == ["MatMulV2"]
    low, high = data["changed"][0]["interval"]
    assert low < 1.1 < high
    assert data["total"] == json.loads(npuscope("compare", before, "vs", after, "--json").stdout)["total"]


def test_noise_is_undecided_and_says_what_would_decide_it(tmp_path: Path) -> None:
    a, b = (write_runs(tmp_path / str(seed), seed, count=3, noise=0.05) for seed in (1, 2))
    told = npuscope("compare", a, "vs", b, "--md", tmp_path / "gap.md", "--html", tmp_path / "gap.html")
    assert told.stdout.startswith("Undecided: B takes ")
    assert "is ruled out" in told.stdout
    assert "more runs of each side would decide it" in told.stdout
    assert "Undecided: B takes" in (tmp_path / "gap.md").read_text()
    assert "Undecided: B takes" in (tmp_path / "gap.html").read_text()


def test_one_run_of_each_decides_nothing(tmp_path: Path) -> None:
    a, b = (write_runs(tmp_path / str(seed), seed, count=1) for seed in (1, 2))
    told = npuscope("compare", a, "vs", b)
    assert "fewer than 3 runs" in told.stdout
    assert "give at least 3 runs of each side" in told.stdout


def test_the_steps_of_two_captures_are_their_runs(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    for name, factor in (("a", 1.0), ("b", 1.08)):
        rows, at = [], 0.0
        for step in range(8):
            for kernel, us in KERNELS.items():
                took = us * (factor if kernel == "MatMulV2" else 1.0) * float(np.exp(0.01 * rng.normal()))
                rows.append(row(kernel, at, took, step))
                at += took
            at += 30
        write_kernel_table(tmp_path / f"{name}.csv", rows)
    data = json.loads(npuscope("compare", tmp_path / "a.csv", tmp_path / "b.csv", "--steps", "--json").stdout)
    assert (data["samples"], data["total"]["runs"], data["total"]["verdict"]) == ("steps", [8, 8], "slower")
    assert [row["name"] for row in data["changed"]] == ["MatMulV2"]


def test_a_gate_fails_beyond_the_noise_and_is_undecided_within(tmp_path: Path) -> None:
    before = write_runs(tmp_path / "before", 1, noise=0.03)
    budget = tmp_path / "budget.toml"
    budget.write_text('[[limit]]\nmetric = "core_us"\nkernel = "MatMulV2"\nmax_increase = 0.0\n')
    noisy = write_runs(tmp_path / "noisy", 3, count=4, noise=0.03, MatMulV2=1.03)
    told = npuscope("gate", noisy, "--budget", budget, "--baseline", before)
    assert (told.returncode, "undecided" in told.stdout) == (0, True)
    assert npuscope("gate", noisy, "--budget", budget, "--baseline", before, "--strict").returncode == 3
    slow = write_runs(tmp_path / "slow", 4, noise=0.03, MatMulV2=1.3)
    assert npuscope("gate", slow, "--budget", budget, "--baseline", before).returncode == 1
