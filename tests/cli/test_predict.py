"""`npuscope predict`, through its real entry point."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from command import npuscope

CONFIGS = Path(__file__).resolve().parents[1] / "data" / "configs"
QWEN3 = ("--config", CONFIGS / "qwen3_32b.json", "--batch", "16", "--context", "4096", "--tp", "16")


def test_a_decode_step_is_predicted_and_explained() -> None:
    done = npuscope("predict", *QWEN3, "--phase", "decode", "--device", "a3")
    assert done.returncode == 0, done.stderr
    assert "Qwen3 decode, batch 16, context 4,096, tp 16 on Ascend 910C (A3)" in done.stdout
    assert "in 791 kernels" in done.stdout
    gate_up = next(line for line in done.stdout.splitlines() if line.split()[:2] == ["gate_up", "MatMulV2"])
    assert gate_up.split()[2] == "64"
    assert "Outside the calibrated range" in done.stdout
    assert "no waits for other ranks" in done.stdout


def test_a_prediction_loads_neither_simulator_nor_language() -> None:
    """What makes it cheap; benchmarks/predict.py measures how cheap."""
    code = "import atexit, sys, npuscope.cli as cli; atexit.register(lambda: print(*sys.modules)); cli.main()"
    run = subprocess.run([sys.executable, "-c", code, "predict", *QWEN3], capture_output=True, text=True, timeout=600)
    loaded = set(run.stdout.split())
    assert "npuscope.forward.llm.prediction" in loaded
    assert not {"numba", "rich", "npuscope.time", "npuscope.tile"} & loaded


def test_json_markdown_and_a_trace_in_one_go(tmp_path: Path) -> None:
    md, out = tmp_path / "pass.md", tmp_path / "pass.csv"
    done = npuscope("predict", *QWEN3, "--json", "--md", md, "--out", out)
    told = json.loads(done.stdout)
    assert told["calls"] == 791
    assert told["total_ns"] == sum(row["total_ns"] for row in told["roles"])
    assert told["run"]["tp"] == 16
    assert "| gate_up | MatMulV2 | 64 |" in md.read_text()
    again = json.loads(npuscope("report", out, "--json").stdout)
    assert again["window_ns"] == told["total_ns"]
    assert sum(row["count"] for row in again["kernels"]) == 791


def test_unknown_kernels_are_listed_and_not_summed() -> None:
    done = npuscope(
        "predict", "--config", CONFIGS / "deepseek_v3.json", "--batch", "5", "--context", "4096",
        "--tp", "8", "--dp", "2", "--ep", "16", "--quant", "w8a8",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "3 kernels have no known time and are not in the sum." in done.stdout
    assert "3x hcom_ (unattributed collective)" in done.stdout
    assert "tokens evenly over the experts" in done.stdout


def test_what_a_config_says_cannot_act(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "qwen3_32b.json").read_text())
    (path := tmp_path / "config.json").write_text(
        json.dumps({**config, "quantization_config": {"quant_method": "\x1b[2J<img src=x>"}})
    )
    done = npuscope("predict", "--config", path, "--md", md := tmp_path / "pass.md")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + md.read_text()
    assert "<img" not in md.read_text()
