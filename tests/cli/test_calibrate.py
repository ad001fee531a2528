"""`npuscope calibrate`: captures in, a device file out, from the outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from other_chips import LAYER, other, program_on
from typer.testing import CliRunner, Result

from npuscope.chip.devices import load
from npuscope.cli import app
from npuscope.time.run import simulate


def invoked(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calibrate") / "run.npu"
    simulate(program_on(other(block_start=1.7, dispatch_block=2), LAYER, "--small")).trace.write(path)
    return path


def test_a_device_file_of_ones_own(run: Path, tmp_path: Path) -> None:
    # GIVEN a capture of a machine whose blocks take longer to start and to hand out WHEN a device is fitted to it
    mine = tmp_path / "mine.toml"
    done = invoked("calibrate", LAYER, run, "-o", mine, "--", "--small")
    # THEN what moved is printed and written, and the file is a device
    assert done.exit_code == 0, done.output
    assert "typical error" in done.stdout.splitlines()[0]
    assert "timing.block_start" in done.stdout
    assert "nothing in the captures depends on" in done.stdout
    assert done.stdout.endswith(f"wrote {mine}\n")
    chip = load(mine)
    assert chip.inherits == "ascend910b1"
    assert chip.timing["block_start"].value == pytest.approx(
        1.7 * load("ascend910b1").timing["block_start"].value, rel=0.1
    )
    assert str(run) in chip.timing["block_start"].source
    # AND going on from it moves next to nothing
    again = invoked("calibrate", LAYER, run, "--device", mine, "-o", tmp_path / "again.toml", "--json", "--", "--small")
    assert again.exit_code == 0, again.output
    found = json.loads(again.stdout)
    assert load(tmp_path / "again.toml").inherits == "mine.toml"
    assert {row["place"] for row in found["constants"]} == {f"timing.{name}" for name in known_names()}
    assert all(0.9 < row["factor"] < 1.1 for row in found["constants"] if row["place"] == "timing.block_start")
    assert found["typical_error"][1] <= found["typical_error"][0] < 0.05
    assert found["captures"] == [str(run)]
    assert {row["what"] for row in found["errors"]} >= {"q_proj", "wall"}


def known_names() -> set[str]:
    return {name for name, c in load("ascend910b1").timing.items() if c.unit in ("s", "B/s", "cycles") and c.value > 0}
