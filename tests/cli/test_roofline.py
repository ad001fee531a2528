"""`npuscope roofline` through its real entry point."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from builders import KERNEL_HEADER, kernel_row, write_kernel_table
from command import npuscope
from page_data import charts_in

NAMES = ("gemm", "softmax")
HEADER = [*KERNEL_HEADER, "Input Data Types"]


def capture(tmp_path: Path, kind: str = "MatMulV2", shapes: str = '"16,5120;5120,768"') -> Path:
    row = {**kernel_row(type=kind, name=kind, shapes=shapes, dur="10.000"), "Input Data Types": "DT_BF16;DT_BF16"}
    return write_kernel_table(tmp_path / "kernel_details.csv", [row], HEADER)


def test_text_json_markdown_and_page(tmp_path: Path) -> None:
    path = capture(tmp_path)
    page, md = tmp_path / "r.html", tmp_path / "r.md"
    run = npuscope("roofline", path, "--device", "910C", "--html", page, "--md", md)
    assert run.returncode == 0, run.stderr
    assert "Kernels run at 45.8% of the chip's limits" in run.stdout
    assert "16,5120;5120,768" in run.stdout
    (chart,) = charts_in(page, "roofline")
    assert [point["name"] for point in chart["points"]] == ["MatMulV2"]
    assert "http://" not in page.read_text().replace("http://www.w3.org/2000/svg", "")
    assert "| MatMulV2 | 16,5120;5120,768 | gemm | 1 | 1 | 10.0 | 10.0 |" in md.read_text()
    told = json.loads(npuscope("roofline", path, "--device", "a3", "--json").stdout)
    (row,) = told["kernels"]
    assert (row["kernel"], row["flops"], row["bound"]) == ("MatMulV2", 2 * 16 * 5120 * 768, "memory")
    assert told["device"] == {"name": "a3", "title": "Ascend 910C (A3), one die of two", "chosen_by": "given"}
    assert (told["steps"], told["unknown"]) == (1, [])


def test_a_program_is_held_against_the_chip_too(tmp_path: Path) -> None:
    # GIVEN two kernels whose work is known: a product of bf16, and a softmax of fp32
    gemm, softmax = (json.loads(npuscope("roofline", f"model:basics/{name}", "--json").stdout) for name in NAMES)
    (product,), (vector,) = gemm["kernels"], softmax["kernels"]
    # THEN FLOPs are theirs, at the rate of their unit: 24 cores of 8192 at 1.85 GHz, 48 of 128
    assert (product["flops"], product["bound"], product["family"]) == (2 * 512 * 512 * 1024, "cube", "cube")
    assert product["limit_ns"] == pytest.approx(2 * 512 * 512 * 1024 / (24 * 8192 * 1.85))
    assert (vector["flops"], vector["bound"]) == (5 * 512 * 256, "vector")  # max, subtract, exp, sum, divide
    assert vector["limit_ns"] == pytest.approx(5 * 512 * 256 / (48 * 128 * 1.85))
    for row in (product, vector):
        assert row["efficiency"] == pytest.approx(row["limit_ns"] / row["time_ns"])
        assert row["lost_ns"] == pytest.approx(row["time_ns"] - row["limit_ns"])
    # AND what only a capture can be asked is refused, as is what only a program can
    refused = npuscope("roofline", "model:basics/gemm", "--context", "4096")
    assert (refused.returncode, "it tells its sizes" in refused.stderr) == (2, True)
    refused = npuscope("roofline", capture(tmp_path), "--device", "a3", "--set", "TILE=64")
    assert (refused.returncode, "a capture takes no arguments" in refused.stderr) == (2, True)


def test_a_device_of_ones_own(tmp_path: Path) -> None:
    own = tmp_path / "half.toml"
    own.write_text(
        'name = "half"\ntitle = "half an A3"\ninherits = "a3"\n[memory]\n'
        'bandwidth = { value = 8.79609302e11, unit = "B/s", source = "half", confidence = "guessed" }\n'
    )
    run = npuscope("roofline", capture(tmp_path), "--device", own)
    assert "100.0% of their time has a known limit on half an A3" in run.stdout
