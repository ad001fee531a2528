"""The command line through its real entry point: what a user types, sees, and gets as exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from builders import kernel_row, write_events, write_kernel_table, x
from command import npuscope


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_kernel_table(
        tmp_path / "kernel_details.csv", [kernel_row(start=f"{n}.500", step="3") for n in (10, 20)]
    )


def test_info_tells_what_a_capture_is(table: Path) -> None:
    run = npuscope("info", table)
    assert (run.returncode, run.stderr) == (0, "")
    assert "kernel_details.csv: kernel_details" in run.stdout
    assert "slices   2 from 2 records" in run.stdout
    assert "doctor: sound" in run.stdout


def test_info_as_json_keeps_its_contract(table: Path) -> None:
    data = json.loads(npuscope("info", table, "--json").stdout)
    assert data["format"] == "kernel_details"
    assert (data["slices"], data["window_ns"], data["kernels"], data["steps"], data["edges"]) == (2, 15_000, 1, 1, 0)
    assert data["lanes"] == {"stream": 1}
    assert data["marked"] == data["repaired"] == data["dropped"] == {}


def test_info_can_keep_the_trace(table: Path, tmp_path: Path) -> None:
    assert npuscope("info", table, "-o", tmp_path / "kept").returncode == 0
    assert json.loads(npuscope("info", tmp_path / "kept", "--json").stdout)["slices"] == 2


def test_convert_and_back(table: Path, tmp_path: Path) -> None:
    run = npuscope("convert", table, tmp_path / "t.pftrace")
    assert run.returncode == 0
    assert "2 slices" in run.stdout
    assert (tmp_path / "t.pftrace").stat().st_size > 0
    told = json.loads(npuscope("convert", table, tmp_path / "back.csv", "--json").stdout)
    assert told == {
        "from": "kernel_details",
        "to": "kernel_details",
        "out": str(tmp_path / "back.csv"),
        "slices": 2,
        "samples": 0,
        "left_out": {},
    }
    assert (tmp_path / "back.csv").read_bytes() == table.read_bytes()


def test_doctor_in_text_and_json(tmp_path: Path) -> None:
    path = write_events(tmp_path / "t.json", [x("a", 0, 10), x("b", 5, 10)])
    assert "warning: 1 × slice crosses another one of its lane  [overlap]" in npuscope("doctor", path).stdout
    data = json.loads(npuscope("doctor", path, "--json").stdout)
    assert [symptom["id"] for symptom in data["symptoms"]] == ["overlap", "unit-unknown"]


def test_the_version_and_the_module_entry() -> None:
    assert npuscope("--version").stdout.startswith("npuscope 0.")
    run = subprocess.run([sys.executable, "-m", "npuscope", "--version"], capture_output=True, text=True, timeout=600)
    assert run.stdout == npuscope("--version").stdout


def test_output_is_the_same_every_time(tmp_path: Path) -> None:
    assert len({npuscope("demo").stdout for _ in range(3)}) == 1


def test_formats_lists_both_directions() -> None:
    text = npuscope("formats").stdout
    assert "kernel_details" in text
    assert ".pftrace" in text


def test_demo_makes_reads_and_keeps_a_capture(tmp_path: Path) -> None:
    run = npuscope("demo", "--keep", tmp_path / "demo")
    assert run.returncode == 0
    # fewer tasks are worth more than its two main kernels a quarter faster, which comes second
    assert run.stdout.startswith("Tasks wait for the scheduler for 201 µs (21.0% of the time)")
    assert "Work runs on full cores for 646 µs (67.3% of the time" in run.stdout
    assert (tmp_path / "demo/report.html").exists()
    assert npuscope("demo", "--keep", tmp_path / "demo/report.html").returncode == 2  # a file, not a folder


def test_a_terminal_without_utf8_still_gets_numbers(table: Path) -> None:
    run = npuscope("info", table, PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert run.returncode == 0
    assert "kernel_details, 15 ?s with 2 slices" in run.stdout


def test_a_reader_that_goes_away_is_no_error(table: Path) -> None:
    program = Path(sys.executable).with_name("npuscope")
    run = subprocess.run(f"{program} info {table} | head -c 1", shell=True, capture_output=True, text=True, timeout=600)
    assert "Traceback" not in run.stderr


def test_help_loads_nothing_heavy() -> None:
    code = """
import sys
sys.argv = ["npuscope", "--help"]
try:
    import npuscope.cli
    npuscope.cli.main()
except SystemExit:
    heavy = {"polars", "numpy", "numba", "msgspec", "orjson", "rich", "ml_dtypes", "asyncio"}
    heavy |= {"scipy", "starlette", "uvicorn", "watchfiles", "ruptures", "mcp"}
    print(sorted(heavy & set(sys.modules)), file=sys.stderr)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert run.stderr.strip() == "[]"
