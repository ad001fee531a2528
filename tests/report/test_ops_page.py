"""The page of ops: complete, and what it says of an op is what the op does."""

from __future__ import annotations

from typing import Any

import pytest

from npuscope.chip.devices import load
from npuscope.ops import table
from npuscope.report.reference import op_dict, op_text, ops_page, ops_text

CHIP = load("ascend910b1")


def test_the_page_has_every_op() -> None:
    page = ops_page()
    for spec in table.BY_NAME.values():
        assert spec.doc in page, spec.name


@pytest.mark.parametrize("spec", table.BY_NAME.values(), ids=lambda spec: spec.name)
def test_every_op_is_told_with_its_signature_and_its_cost(spec) -> None:
    text = op_text(spec, CHIP)
    assert spec.doc in text
    told: Any = op_dict(spec, CHIP)
    assert "(" in told["signatures"][0] or not spec.names
    assert (told["cycles"] is None) == (not spec.cost)
    assert f"\n  {spec.name} " in ops_text(CHIP)


def test_a_cost_taken_over_from_another_op_is_a_guess_and_says_whose_it_is() -> None:
    largest, smallest = (op_dict(table.spec_of(name), CHIP) for name in ("row_max", "row_min"))
    assert smallest["cycles"] == largest["cycles"]
    assert (largest["confidence"], smallest["confidence"]) == ("fitted", "guessed")
    assert smallest["source"] == "as reduce.row_max: its mirror image"
