"""`npuscope check --fix`: patches that were tried, what they give, and what becomes of the file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from command import npuscope

PROGRAM = """import numpy as np

import npuscope.tile as pl
from npuscope.tile.golden import TensorSpec, run_jit

M, N, K, TILE = 16, 512, 2048, 64


@pl.jit
def product(a: pl.Tensor[[M, K], pl.BF16], b: pl.Tensor[[K, N], pl.BF16], c: pl.Out[pl.Tensor[[M, N], pl.FP32]]):
    # zeros, which every block writes again
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="zeros"):
        zero = pl.full([M, N], dtype=pl.FP32, value=0.0)
        c = pl.assemble(c, zero, [0, 0])
    for block in pl.spmd(N // TILE, name_hint="product"):
        n = block * TILE
        total = pl.full([M, TILE], dtype=pl.FP32, value=0.0)
        for k in pl.range(0, K, TILE):  # over K
            total = pl.add(total, pl.matmul(a[:, k : k + TILE], b[k : k + TILE, n : n + TILE]))
        c = pl.assemble(c, total, [0, n])
    return c


def golden(tensors: dict) -> None:
    tensors["c"][:] = tensors["a"].astype(np.float64) @ tensors["b"].astype(np.float64)


specs = [
    TensorSpec("a", [M, K], pl.BF16, init_value=lambda rng: rng.normal(size=(M, K))),
    TensorSpec("b", [K, N], pl.BF16, init_value=lambda rng: rng.normal(size=(K, N))),
    TensorSpec("c", [M, N], pl.FP32, is_output=True),
]
raise SystemExit(run_jit(fn=product, specs=specs, golden_fn=golden, rtol=1e-3, atol=1e-3).error)
"""


def test_patches_are_shown_with_what_they_give_and_nothing_is_written(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    shown = npuscope("check", file, "--fix", folder=tmp_path)
    assert shown.returncode == 0, shown.stderr
    assert "begun by its first product [matmul-acc]" in shown.stdout
    assert "+            total = pl.matmul_acc(total, a[:, k : k + TILE]" in shown.stdout
    assert "the golden holds" in shown.stdout
    assert file.read_text() == PROGRAM
    told = json.loads(npuscope("check", file, "--fix", "--json", folder=tmp_path).stdout)
    gains = [one["saves_ns"] for one in told["fixes"]]
    assert gains == sorted(gains, reverse=True)
    assert all(0.5 <= one["versus"]["probability_faster"] <= 1 and one["saves_ns"] > 0 for one in told["fixes"])
    assert all(one["why"] for one in [*told["not_offered"], *told["unmended"]])


def test_a_finding_is_worth_what_its_fix_gave(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    told = json.loads(npuscope("check", file, "--fix", "--json", folder=tmp_path).stdout)
    gave: dict[tuple[str, int], int] = {}
    for one in told["fixes"]:
        for id, _, line in one["mends"]:
            gave[id, line] = max(gave.get((id, line), 0), one["saves_ns"])
    worth = {(one["id"], one["line"]): one["saves_ns"] for one in told["findings"] if one["tried"] == "tried"}
    assert {place: worth[place] for place in gave if place in worth} == {p: gave[p] for p in gave if p in worth}
    assert gave.keys() & worth.keys()
    others = [one["tried"] for one in told["findings"] if one["tried"] != "tried"]
    assert all(text.startswith(("not tried: ", "not offered: ")) for text in others)
    ranked = [one["saves_ns"] or 0 for one in told["findings"]]
    assert ranked == sorted(ranked, reverse=True)
    assert min(ranked) >= 0  # what costs time if it is mended is no finding


def test_those_that_help_together_are_written_a_commit_each(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    for words in ("init -q", "config user.name a", "config user.email a@b", "add .", "commit -q -m first"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    before = json.loads(npuscope("judge", file, "--json", folder=tmp_path).stdout)
    done = npuscope("check", file, "--fix", "--apply", "--commit", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    text = file.read_text()
    assert "# zeros, which every block writes again" in text
    assert "  # over K" in text
    assert 'name_hint="zeros"' not in text
    assert "pl.add(" not in text
    log = subprocess.run(["git", "log", "--format=%s"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert len(log.stdout.splitlines()) >= 3  # the first, the zeros, the sum
    assert subprocess.run(["git", "status", "--porcelain"], cwd=tmp_path, capture_output=True).stdout == b""
    (old,), (new,) = before["answers"], json.loads(npuscope("judge", file, "--json", folder=tmp_path).stdout)["answers"]
    assert new["verdict"] == "good"
    assert new["time"]["wall_ns"] < old["time"]["wall_ns"]


def test_only_what_is_selected_is_mended_and_code_review_has_the_patch(tmp_path: Path) -> None:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    words = ("--fix", "--select", "zero-fill", "--sarif", "found.sarif", "--json")
    told = json.loads(npuscope("check", file, *words, folder=tmp_path).stdout)
    fixes = [*told["fixes"], *told["not_offered"]]
    assert all(any(id == "zero-fill" for id, _, _ in one["mends"]) for one in fixes)
    assert {one["id"] for one in told["findings"]} == {"zero-fill"}
    (run,) = json.loads((tmp_path / "found.sarif").read_text())["runs"]
    marks = [one["partialFingerprints"]["npuscopeFinding/v1"] for one in run["results"]]
    assert len(set(marks)) == len(marks)
    (fix, *_) = next(one["fixes"] for one in run["results"] if "fixes" in one)
    (change,) = fix["artifactChanges"]
    assert change["artifactLocation"]["uri"] == "program.py"
    lines = PROGRAM.splitlines(keepends=True)
    for part in reversed(change["replacements"]):
        region = part["deletedRegion"]
        assert (region["startColumn"], region["endColumn"]) == (1, 1)
        lines[region["startLine"] - 1 : region["endLine"] - 1] = [part["insertedContent"]["text"]]
    file.write_text("".join(lines))
    (judged,) = json.loads(npuscope("judge", file, "--json", folder=tmp_path).stdout)["answers"]
    assert judged["verdict"] == "good"
    assert judged["time"]["wall_ns"] in {one["wall_ns"] for one in told["fixes"]}
