"""What `npuscope memory` says of a program: the fullest memories, the tiles in them, and the same as data."""

from pathlib import Path
from typing import Any

import pytest

from npuscope.answer.checks import fits
from npuscope.answer.request import Request
from npuscope.check.columns import BAR, bar
from npuscope.check.run import Fit
from npuscope.lower.chip import chip_to_lower_for
from npuscope.report.program import lowering_text, memory, memory_tables
from npuscope.table.columns import all_rows
from npuscope.table.parts import as_text
from tests.report.memory_programs import written

CHIP = chip_to_lower_for("910b1")


def planned(path: Path, kernel: str | None = None) -> tuple[Fit, ...]:
    return fits(Request(str(path)), kernel)


def test_every_function_with_its_share_and_what_does_not_fit_first(tmp_path: Path) -> None:
    path = written(tmp_path / "layer.py", tk=512, tn=512)
    lines = as_text(memory(str(path), CHIP.name, planned(path))).splitlines()
    # 512·512·2 of weights and 16·512·2 of activations, each in two turns
    assert lines[0] == "does not fit: 1 memory is too small, worst Mat 206.2% (gate_aic)"
    assert lines[3].split() == ["function", "space", "used", "MiB", "limit", "MiB", "share", "fits"]
    assert lines[4].split()[:5] == ["gate_aic", "Mat", "1.03", "0.500", "206.2%"]
    assert lines[4].endswith("does not fit")
    assert sum(line.endswith("does not fit") for line in lines) == 1
    shares = [float(line.split("%")[0].split()[-1]) for line in lines[4:10]]
    assert shares == sorted(shares, reverse=True)
    (error,) = (line for line in lines if "error:" in line)
    assert error.startswith(
        "layer.py:15: error: gate_aic Mat buffer usage 1081344 > 524288: w [512, 512] BF16 524288 B"
    )
    assert "    remedy: TN = 512 is too large: up to 240 fits (128 is the largest that divides 512)." in lines


def test_the_tiles_of_one_kernel_with_address_line_and_lifetime(tmp_path: Path) -> None:
    path = written(tmp_path / "layer.py")
    text = as_text(memory(str(path), CHIP.name, planned(path, "gate_aic"), tiles=True))
    assert "norm" not in text
    assert "gate_aiv" not in text
    assert "gate_aic Mat: 136 KiB of 512 KiB" in text
    rows = [line.split() for line in text.splitlines() if " w " in line and "128×256" in line]
    in_flight = [" ".join(row[-3:]) for row in rows if "of" in row]
    assert {"1 of 2", "2 of 2"} <= set(in_flight)
    assert all("layer.py:17" in row or "layer.py:15" in row for row in rows)


def test_a_ring_at_the_head_of_a_memory_is_named(tmp_path: Path) -> None:
    path = written(tmp_path / "layer.py")
    text = as_text(memory(str(path), CHIP.name, planned(path, "gate"), tiles=True))
    assert "ring C2V, 2 slots of 16 KiB" in text  # the sum [16, 256] FP32 on its way to the vector cores


def test_the_same_as_data(tmp_path: Path) -> None:
    path = written(tmp_path / "layer.py")
    data: Any = all_rows(memory_tables(planned(path), tiles=True))
    assert data["errors"] == []
    mat = next(row for row in data["memory"] if (row["kernel"], row["space"]) == ("gate_aic", "Mat"))
    assert (mat["used"], mat["limit"], mat["launched_as"]) == (139_264, 524_288, "gate")
    assert sum(buffer["bytes"] for buffer in mat["buffers"]) == mat["used"] - mat["ring"]
    tile = mat["buffers"][0]["tiles"][0]
    assert (tile["name"], tile["shape"], tile["dtype"], tile["bytes"]) == ("w", [128, 256], "BF16", 65_536)
    assert (tile["file"], tile["line"]) == (str(path), 15)


def test_a_kernel_before_and_after_every_pass(tmp_path: Path) -> None:
    path = written(tmp_path / "layer.py")
    text = lowering_text(planned(path, "gate"))
    steps = [line for line in text.splitlines() if line.startswith("---")]
    assert steps[0] == "--- recorded"
    assert "--- casts: no change" in steps
    assert any("acc [16, 256] FP32 Acc" in line for line in text.splitlines())
    assert "[AIC MTE1]" in text.partition("--- after split")[2]


def test_programs_that_ran_twice_alike_are_shown_once(tmp_path: Path) -> None:
    path = written(tmp_path / "layer.py")
    path.write_text(path.read_text() + path.read_text().splitlines()[-1] + "\n")
    assert len(planned(path)) == 1


@pytest.mark.parametrize(("share", "full"), [(0.0, 0), (0.001, 1), (0.5, BAR // 2), (1.0, BAR), (3.0, BAR)])
def test_bars_show_what_is_used_at_all_and_end_at_the_limit(share: float, full: int) -> None:
    assert bar(share) == "█" * full + "·" * (BAR - full)
