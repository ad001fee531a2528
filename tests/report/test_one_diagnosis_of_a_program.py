"""One program, one diagnosis: all commands agree in verdict, wall and prices, whatever the format."""

import json
from pathlib import Path
from typing import Any

import pytest
from command import npuscope

from npuscope.table.formats import duration, rough_percent
from npuscope.time.whatif import FEWER_BYTES, FEWEST

ROOT = Path(__file__).resolve().parents[2]
LAYER = "models/qwen3_14b/decode_layer.py"
PROGRAMS = ["models/basics/gemm.py", "models/basics/softmax.py"]


def ran(command: str, program: str, *words: str | Path) -> str:
    done = npuscope(command, ROOT / program, *words)
    assert done.returncode in (0, 1), done.stderr  # check leaves with 1 where there are warnings
    return done.stdout


@pytest.mark.parametrize("program", [pytest.param(LAYER, marks=pytest.mark.full), *PROGRAMS])
def test_all_commands_and_formats_agree(program: str, tmp_path: Path) -> None:
    # GIVEN what simulate says WHEN everybody else is asked
    page, review, sarif = tmp_path / "page.html", tmp_path / "review.md", tmp_path / "check.sarif"
    simulated: dict[str, Any] = json.loads(ran("simulate", program, "--json"))
    text = ran("simulate", program, "--html", page)
    checked: dict[str, Any] = json.loads(ran("check", program, "--json", "--md", review, "--sarif", sarif))
    check_text = ran("check", program, "--all")
    changes: dict[str, Any] = json.loads(ran("whatif", program, "--json"))
    # THEN verdict and wall are the same
    verdict, wall = simulated["verdict"], simulated["wall_ns"]
    assert simulated["window"] == [0, wall]
    (diagnosis,) = checked["diagnoses"]
    for told in (diagnosis, changes):
        assert (told["verdict"], told["bound"], told["wall_ns"]) == (verdict, simulated["bound"], wall)
        assert told["causes"] == simulated["causes"]
    assert verdict in text
    other = "models/basics/rms_norm.py"
    ranked: list[dict[str, Any]] = json.loads(ran("rank", program, ROOT / other, "--json", "--jobs", "1"))
    (row,) = (one for one in ranked if one["variant"] == Path(program).name)
    assert (row["verdict"], row["bound"], row["wall_ns"]) == (verdict, simulated["bound"], wall)
    (judged,) = json.loads(ran("judge", program, "--json", "--no-golden", "--seconds", "600"))["answers"]
    assert (judged["bound_message"], judged["bound"]) == (verdict, simulated["bound"])
    assert judged["time"]["wall_ns"] == wall
    reasons = ran("rank", program, ROOT / other, "--jobs", "1")
    assert f"{Path(program).name}: {verdict}" in reasons
    assert "-bound" not in text + reasons
    assert f"Simulated: {duration(wall)}. {verdict}" in check_text
    assert json.dumps(verdict, ensure_ascii=False)[1:-1] in page.read_text(encoding="utf-8")
    assert f"Simulated: {duration(wall)}." in review.read_text(encoding="utf-8")
    # AND so are the prices: of findings by check and whatif, of limits by the diagnosis and whatif
    gains = {row["what"]: row["gain_ns"] for row in changes["gains"]}
    for finding in checked["findings"]:
        name = f"{finding['id']} {Path(finding['file']).name}:{finding['line']} {finding['kernel']}".strip()
        assert finding["saves_ns"] == gains.get(name), name
        if finding["saves_ns"] is not None:
            assert finding["saves_ns"] < wall
            if abs(finding["saves_ns"]) >= 10:
                assert duration(abs(finding["saves_ns"])) in check_text
    limits = {"bandwidth": FEWER_BYTES, "dispatch": FEWEST}
    for cause in simulated["causes"]:
        if cause["kind"] in limits:
            assert cause["gain"]["ns"] == max(gains[limits[cause["kind"]]], 0)
    results = json.loads(sarif.read_text(encoding="utf-8"))["runs"][0]["results"]
    priced = {(one["id"], one["line"]) for one in checked["findings"] if one["saves_ns"] is not None}
    found = {
        (one["ruleId"], one["locations"][0]["physicalLocation"]["region"]["startLine"])
        for one in results
        if "saves_ns" in one.get("properties", {})
    }
    assert found == priced


def test_a_block_is_bound_by_what_its_pipes_say() -> None:
    # GIVEN a block whose loads are at work 92 % of the time
    program = LAYER
    told: dict[str, Any] = json.loads(ran("simulate", program, "--pipes", "gate_proj", "--json"))
    busiest = max(told["pipes"], key=lambda row: row["share"])
    # THEN that is its verdict, in text too
    assert busiest["pipe"] == "AIC MTE2"
    assert told["verdict"] == f"Loads bound this block: AIC MTE2 is busy {rough_percent(busiest['share'])} of it."
    assert told["verdict"] in ran("simulate", program, "--pipes", "gate_proj")
