"""`--measured OLD.py=CAPTURE` of simulate, rank and sweep, from the outside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from npuscope.chip.devices import load
from npuscope.cli import app

GEMM = Path(__file__).resolve().parents[2] / "models/basics/gemm.py"


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The product as a chip runs it on which a block takes longer to start and loads at half the rate."""
    folder = tmp_path_factory.mktemp("measured")
    timing = load("ascend910b1").timing
    rates = {"load_cube_hbm": 0.5, "load_cube_l2": 0.5, "load_cube_row_hbm": 2, "load_cube_row_l2": 2}
    factors = {"block_start": 3, "pickup": 2, **rates}
    constants = "\n".join(
        f'{name} = {{ value = {timing[name].value * factor}, unit = "{timing[name].unit}", '
        'confidence = "guessed", source = "this test" }'
        for name, factor in factors.items()
    )
    text = f'name = "there"\ntitle = "there"\ninherits = "ascend910b1"\n[timing]\n{constants}\n'
    (folder / "there.toml").write_text(text)
    done = invoked("simulate", GEMM, "--device", folder / "there.toml", "-o", folder / "run.npu")
    assert done.exception is None, done.output
    return folder / "run.npu"


def invoked(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def told(*words: object) -> Any:
    done = invoked(*words, "--json")
    assert done.exception is None, done.output
    return json.loads(done.stdout)


def test_a_changed_program_on_top_of_a_capture(capture: Path) -> None:
    # GIVEN a capture of the program as it is WHEN another tile is tried
    plain = told("simulate", GEMM, "--set", "TILE=64")
    found = told("simulate", GEMM, "--set", "TILE=64", "--measured", f"{GEMM}={capture}")
    there = told("simulate", GEMM, "--set", "TILE=64", "--device", capture.with_name("there.toml"))
    # THEN it is nearer to that than without the capture, by a third at least: 64 blocks run beside each other otherwise
    # than the 16 that were measured
    missing = there["wall_ns"] - plain["wall_ns"]
    assert missing > 0
    assert abs(found["wall_ns"] - there["wall_ns"]) < 2 / 3 * missing
    assert "anchor" not in plain
    anchor = found["anchor"]
    assert anchor["simulated_wall_ns"] == plain["wall_ns"]
    assert (anchor["matched"], anchor["only_measured"], anchor["only_simulated"]) == (1, [], [])
    (row,) = anchor["kernels"]
    assert (row["kernel"], row["state"], row["measured_blocks"], row["new_blocks"]) == ("gemm", "changed", 16, 64)
    assert row["measured_ns"] > row["simulated_ns"]
    assert row["ratio"] == pytest.approx(row["measured_ns"] / row["simulated_ns"])
    before, after = anchor["walls"]
    assert before["anchored_ns"] == pytest.approx(before["measured_ns"], rel=0.03)
    assert after["measured_ns"] is None
    assert anchor["change"]["ratio"] == pytest.approx(after["anchored_ns"] / before["anchored_ns"])
    assert anchor["expected_ns"] == pytest.approx(before["measured_ns"] * anchor["change"]["ratio"], abs=1)
    interval = anchor["expected_interval_ns"]
    assert interval["low"] < anchor["expected_ns"] < interval["high"]
    assert found["wall_interval_ns"]["low"] < found["wall_ns"] < found["wall_interval_ns"]["high"]


def test_people_read_how_far_the_simulation_was_off(capture: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = invoked("simulate", GEMM, "--set", "TILE=64", "--measured", f"{GEMM}={capture}", "--html", page)
    assert done.exit_code == 0, done.output
    assert "simulated on top of a capture:" in done.stdout.splitlines()[0]
    assert "gemm.py: 1 kernel matched" in done.stdout
    assert "changed: gemm; taken to be off by as much as before the change" in done.stdout
    assert "published changes of" in done.stdout
    assert page.stat().st_size > 10_000


def test_variants_stand_on_it_too(capture: Path, tmp_path: Path) -> None:
    words = ("sweep", GEMM, "--set", "TILE=128,64", "--measured", f"{GEMM}={capture}")
    found = told(*words)
    rows = {row["variant"]: row for row in found["variants"]}
    alone = told("simulate", GEMM, "--set", "TILE=64", "--measured", f"{GEMM}={capture}")
    assert rows["TILE=64"]["wall_ns"] == alone["wall_ns"]
    assert rows["TILE=64"]["wall_interval_ns"]["learnt_from"] == alone["wall_interval_ns"]["learnt_from"]
    assert found["anchor"]["matched"] == 1
    # results with a capture are not those without
    results = tmp_path / "kept.jsonl"
    plain = told("sweep", GEMM, "--set", "TILE=128,64", "--results", results)
    again = told(*words, "--results", results)
    assert len(results.read_text().splitlines()) == 4
    assert {row["wall_ns"] for row in again["variants"]}.isdisjoint(row["wall_ns"] for row in plain)
    text = invoked(*words, "--no-why", "--html", tmp_path / "plot.html")
    assert text.exit_code == 0, text.output
    assert "gemm.py: 1 kernel matched" in text.stdout
    assert "1 kernel matched" in (tmp_path / "plot.html").read_text()
