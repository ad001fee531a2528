"""`npuscope whatif` of a tile program, and of a capture without options."""

from __future__ import annotations

import json
from pathlib import Path

from command import npuscope

SMALL = ("models/qwen3_14b/decode_layer.py", "--", "--small", "--context", "256")
ROOT = Path(__file__).resolve().parents[2]


def test_a_program_s_kernels_costs_and_findings_are_ranked(tmp_path: Path) -> None:
    words = (ROOT / SMALL[0], *SMALL[1:])
    told = npuscope("whatif", *words)
    assert told.returncode == 0, told.stderr
    for line in (
        "kernel      fa_fused",
        "dispatch    all of the scheduler",
        "Each change alone",
        "What the findings above stand for:",
    ):
        assert line in told.stdout
    assert "80%, likely faster" in told.stdout
    assert "As it is: " in told.stdout
    data = json.loads(npuscope("whatif", "--json", *words).stdout)
    assert data["wall_interval_ns"]["low"] <= data["wall_ns"] <= data["wall_interval_ns"]["high"]
    gains = data["gains"]
    assert all(0 <= gain["against"]["probability_faster"] <= 1 for gain in gains)
    assert all(gain["against"]["low"] <= gain["against"]["ratio"] <= gain["against"]["high"] for gain in gains)
    assert {gain["kind"] for gain in gains} == {"kernel", "dependency", "dispatch", "bandwidth", "finding"}
    assert all(gain["gain_ns"] == data["wall_ns"] - gain["nothing_ns"] for gain in gains)
    assert [gain["gain_ns"] for gain in gains] == sorted((gain["gain_ns"] for gain in gains), reverse=True)


def test_a_program_is_asked_about_with_settings() -> None:
    gemm = ROOT / "models/basics/gemm.py"
    walls = [json.loads(npuscope("whatif", gemm, "--set", f"TILE={n}", "--json").stdout)["wall_ns"] for n in (128, 64)]
    assert walls[0] < walls[1]


def test_options_change_a_program_s_simulated_run() -> None:
    words = (ROOT / SMALL[0], "--scale", "fa_fused=0.5", *SMALL[1:])
    told = npuscope("whatif", *words)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("What if: ")
    assert "replay error" in told.stdout
    assert "Both are simulated: measured, the ratio of " in told.stdout


def test_a_capture_without_options_is_tried_kernel_by_kernel(tmp_path: Path) -> None:
    assert npuscope("demo", "--keep", tmp_path / "demo_out").returncode == 0
    told = npuscope("whatif", tmp_path / "demo_out/run")
    assert "every wait for the scheduler" in told.stdout
    data = json.loads(npuscope("whatif", tmp_path / "demo_out/run", "--json").stdout)
    assert data["measured_ns"] == data["new_ns"] == data["wall_ns"]
    assert {"dispatch", "FIN", "pickup"} <= {gain["what"] for gain in data["gains"]}
