"""The Qwen3 steps leave the record that they leave with every task run in its turn."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from qwen3 import recorded
from qwen3_14b import decode, decode_a8w8
from qwen3_14b.config import QWEN3_14B, SMALL, Qwen3, sized
from same_record import first_difference

from npuscope.tile.run.execute import every_task_in_its_turn


@pytest.mark.parametrize("step", [decode, decode_a8w8], ids=["bf16", "a8w8"])
@pytest.mark.parametrize("model", [sized(SMALL, layers=3), sized(QWEN3_14B, layers=2)], ids=["small", "14B"])
def test_some_layers(step: Any, model: Qwen3) -> None:
    found = []
    for how in (nullcontext, every_task_in_its_turn):
        with how():
            found.append(recorded(step.make_program(model), step.specs(model)))
    assert first_difference(*found) is None
    assert found[0].notices == found[1].notices
