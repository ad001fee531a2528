"""A tool's answer stays within its budget, and says what was cut."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from npuscope.agents.budget import LEAST, within


def size(told: object) -> int:
    return len(json.dumps(told, ensure_ascii=False).encode())


@given(st.lists(st.text(max_size=60), max_size=200), st.integers(LEAST, 4000))
def test_long_lists_become_shorter_and_that_is_said(items: list[str], budget: int) -> None:
    told = {"verdict": "yes", "rows": [{"name": item} for item in items]}
    small = within(told, budget)
    assert small["verdict"] == "yes"
    if size(told) <= budget:
        assert small == told
    else:
        assert size(small) <= budget
        assert small["cut"]["rows"] == f"{len(small['rows'])} of {len(items)}"
        assert small["rows"] == told["rows"][: len(small["rows"])]  # what is left is as it was, the first ones first
    assert told["rows"] == [{"name": item} for item in items]  # the original is untouched
