"""`npuscope memory` through its real entry point: what it prints and writes, how it ends, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import npuscope

from tests.report.memory_programs import written


def test_a_program_that_fits(tmp_path: Path) -> None:
    done = npuscope("memory", written(tmp_path / "layer.py"))
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()[:2]
    assert first == "Fits: the fullest memory is Right 100.0% (gate_aic)"
    assert second == f"{tmp_path / 'layer.py'}: layer on ascend910b1, 3 functions with memory on chip"


def test_a_program_that_does_not_is_exit_code_1_with_the_constant_to_change(tmp_path: Path) -> None:
    done = npuscope("memory", written(tmp_path / "layer.py", tk=512, tn=512))
    assert done.returncode == 1, done.stderr
    assert "gate_aic Mat buffer usage 1081344 > 524288" in done.stdout
    assert "TN = 512 is too large" in done.stdout
    # ... of the kernel that is asked for
    assert npuscope("memory", tmp_path / "layer.py", "--kernel", "norm").returncode == 0


def test_json_tells_the_same(tmp_path: Path) -> None:
    done = npuscope("memory", written(tmp_path / "layer.py", tk=512, tn=512), "--json", "--kernel", "gate")
    told = json.loads(done.stdout)
    assert done.returncode == 1
    assert told["fits"] is False
    assert {"kernel", "space", "used", "limit"} <= set(told["memory"][0])
    assert [row["space"] for row in told["memory"]] == ["Mat", "Left", "Right", "Acc", "Vec"]
    assert {"id", "severity", "file", "line", "message", "cost"} <= set(told["errors"][0])
    assert sum(len(buffer["tiles"]) for buffer in told["memory"][0]["buffers"]) >= 4


def test_a_page_and_the_steps_of_a_kernel_in_one_go(tmp_path: Path) -> None:
    page, dump = tmp_path / "memory.html", tmp_path / "gate.txt"
    done = npuscope("memory", written(tmp_path / "layer.py"), "--html", page, "--kernel", "gate", "--dump", dump)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [f"wrote {page}", f"wrote {dump}"]
    assert page.read_text().startswith("<!doctype html>")
    printed = npuscope("memory", tmp_path / "layer.py", "--kernel", "gate", "--dump", "-")
    assert printed.stdout == dump.read_text()
    assert printed.stdout.startswith("--- recorded\ngate, body 0\n")


def test_a_deeper_ring_takes_more(tmp_path: Path) -> None:
    written(tmp_path / "layer.py")
    used = []
    for slots in (2, 4):
        done = npuscope("memory", tmp_path / "layer.py", "--ring-slots", str(slots), "--json")
        used.append({(row["kernel"], row["space"]): row["used"] for row in json.loads(done.stdout)["memory"]})
    assert used[1]["gate_aiv", "Vec"] - used[0]["gate_aiv", "Vec"] == 2 * 16 * 256 * 4
    assert used[1]["gate_aic", "Mat"] == used[0]["gate_aic", "Mat"]


def test_the_larger_chip_has_more_room(tmp_path: Path) -> None:
    done = npuscope("memory", written(tmp_path / "layer.py"), "--device", "ascend950", "--json")
    limits = {row["space"]: row["limit"] for row in json.loads(done.stdout)["memory"]}
    assert (limits["Vec"], limits["Acc"]) == (245_760, 262_144)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("print(1)\n", "the script ran no tile program"),
        ("x = 1 +\n", "SyntaxError"),
        ("raise ValueError('no')\n", "line 1: ValueError: no"),
        ("assert 1 == 2\n", "line 1: AssertionError"),
    ],
)
def test_scripts_that_are_no_programs(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "script.py").write_text(text)
    done = npuscope("memory", tmp_path / "script.py")
    assert done.returncode == 2
    assert message in done.stderr
