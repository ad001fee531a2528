"""What the stories in docs/stories conclude from simulated times is so, whatever the constants are fitted to."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = [sys.executable, "-m", "npuscope"]
A8W8 = "models/qwen3_14b/decode_a8w8.py"
TILELET = "models/qwen3_32b_tilelet.py"


def npuscope(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*PROGRAM, *words], cwd=ROOT, capture_output=True, text=True, timeout=300)


def answer(command: str) -> Any:
    """What a command prints with --json."""
    before, dashes, after = command.partition(" -- ")
    run = npuscope(*shlex.split(f"{before} --json{dashes}{after}"))
    assert run.stdout, run.stderr
    return json.loads(run.stdout)


# Story 3: the tilelet


def test_the_improved_tilelet_has_9_tasks_for_527_and_is_several_times_as_fast() -> None:
    """12 times when the page was written; small tasks are right within a third, so 5 is far on the safe side."""
    first, second = answer(f"sweep {TILELET} --set AS_FOUND=1,0")
    assert (first["tasks"], second["tasks"]) == (9, 527)
    assert second["wall_ns"] > 5 * first["wall_ns"]


def test_what_findings_of_the_tilelet_are_worth() -> None:
    """Worth doing: wide weight tiles, coarse down projection, one attention kernel. Not: padding, shared K/V loads."""
    told = answer(f"whatif {TILELET} -- --as-found")
    gains = {" ".join(g["what"].split()[:2]): g["gain_ns"] for g in told["gains"] if g["kind"] == "finding"}
    file = "qwen3_32b_tilelet_as_found.py"
    large = [f"short-row {file}:210", f"short-task {file}:239", f"gm-round-trip {file}:160"]
    small = [f"padded-rows {file}:162", f"padded-rows {file}:175", f"shared-load {file}:110", f"shared-load {file}:112"]
    assert min(gains[name] for name in large) > 0.02 * told["wall_ns"]
    assert max(gains[name] for name in small) < 0.01 * told["wall_ns"]
    assert any("variance-not-rsqrt" in str(finding) for finding in told["not_expressed"])


# Story 4: A8W8


def test_dual_gate_up_and_spmd_shorten_the_simulated_step() -> None:
    settings = "--set QWEN_A8W8_DUAL_GATE_UP_PROJ=0,1 --set QWEN_A8W8_SPMD=0,1"
    told = answer(f"sweep {A8W8} {settings} --no-why -- --context 256")
    found = {tuple(re.findall(r"=(\d)", v["variant"])): v for v in told}
    assert {key: v["tasks"] for key, v in found.items()} == {
        ("0", "0"): 13021, ("1", "0"): 10301, ("0", "1"): 9741, ("1", "1"): 7021,
    }  # fmt: skip
    none = found["0", "0"]["wall_ns"]
    assert all(v["wall_ns"] < none for key, v in found.items() if key != ("0", "0"))
