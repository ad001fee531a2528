"""`npuscope device`: what a chip is made of, and how two differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command import npuscope

from npuscope.chip.devices import differences, list_constants, load, names


def test_a_chip_with_all_its_constants_and_sources() -> None:
    done = npuscope("device", "show", "910b2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith("ascend910b2: Ascend 910B2, one die, derived from ascend910b1, ")
    clock = next(line for line in done.stdout.splitlines() if line.split()[0] == "clock.core")
    assert "1.8e+09" in clock
    assert "documented" in clock
    # a source is told once, whole, below the table, and all fits a line
    number = clock.split()[-1]
    source = done.stdout.partition("sources, ")[2].partition(f"{number} ")[2].partition("[")[0]
    assert "pto-isa" in source
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_a_part_of_it_as_json() -> None:
    found = json.loads(npuscope("device", "show", "910b1", "op.vadd", "--json").stdout)
    values = {row["place"]: row["value"] for row in found["constants"]}
    cost = load("910b1").op["vadd"]
    assert {place: values[place] for place in ("op.vadd.head", "op.vadd.slope", "op.vadd.tail")} == {
        "op.vadd.head": cost.head, "op.vadd.slope": cost.slope, "op.vadd.tail": cost.tail,
    }  # fmt: skip
    assert all(row["source"] and row["unit"] for row in found["constants"])


def test_two_chips_differ_where_their_files_say_so(tmp_path: Path) -> None:
    found = json.loads(npuscope("device", "compare", "910b1", "910b2", "--json").stdout)
    assert (found["a"], found["b"]) == ("ascend910b1", "ascend910b2")
    places = {one["place"]: (one["a"]["value"], one["b"]["value"]) for one in found["differences"]}
    assert places["clock.core"] == (1.85e9, 1.8e9)
    assert "cores.cube" not in places
    text = npuscope("device", "compare", "910b1", "910b4").stdout
    assert "cores.cube" in text
    assert "0.833x" in text  # 20 of 24 cores


@pytest.mark.parametrize("name", names())
def test_every_chip_is_listed_whole_and_equals_itself(name: str) -> None:
    chip = load(name)
    places = [row.place for row in list_constants(chip)]
    assert len(places) == len(set(places))
    assert differences(chip, chip) == []
