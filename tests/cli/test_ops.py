"""`npuscope ops`: all ops, one op by any of its names, and a wrong name."""

from __future__ import annotations

import json

from command import npuscope


def test_all_ops_in_one_table() -> None:
    told = npuscope("ops")
    assert told.returncode == 0
    assert "  row_expand_mul  " in told.stdout
    assert "  syncall  " in told.stdout


def test_one_op_by_an_old_spelling() -> None:
    told = npuscope("ops", "pl.tile.ci")
    assert told.returncode == 0
    assert told.stdout.startswith("arange: ")
    assert "pl.arange · pl.ci(start, shape, dtype=None, descending=False)" in told.stdout


def test_the_same_as_json_for_another_chip() -> None:
    told = json.loads(npuscope("ops", "row_max", "--device", "950", "--json").stdout)
    assert told["name"] == "row_max"
    assert told["device"] == "ascend950"
    assert told["confidence"] == "guessed"
    assert {one["name"] for one in json.loads(npuscope("ops", "--json").stdout)} > {"add", "matmul", "push"}
