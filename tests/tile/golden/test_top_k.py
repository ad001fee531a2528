from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuscope.tile.golden import topk_pair_compare


def judged(actual, expected, values, **options) -> tuple[bool, str]:
    context: dict[str, Any] = {"expected_outputs": {}, "inputs": {}, "rtol": 1e-5, "atol": 1e-5}
    outputs = {"vals": np.asarray(values, np.float32)}
    compare = topk_pair_compare("vals", **options)
    return compare(np.asarray(actual), np.asarray(expected), actual_outputs=outputs, **context)


def test_ties_may_swap() -> None:
    assert judged([[0, 2, 1]], [[0, 1, 2]], [[3, 2, 2]]) == (True, "")


def test_a_worse_candidate_breaks_the_order() -> None:
    passed, message = judged([[0, 9, 2], [0, 1, 2]], [[0, 1, 2], [0, 1, 2]], [[3, 1, 2], [1, 2, 3]])
    assert not passed
    assert "1 position(s)" in message  # the second row is out of order too, but its indices are right
    assert "[0, 1] actual_idx=9 expected_idx=1 actual_score=1 neighbours=[3, 1, 2]" in message


@pytest.mark.parametrize(("values", "passes"), [([[1, 2], [2, 3]], True), ([[1, 2], [0, 3]], False)])
def test_order_may_run_along_another_axis_and_upwards(values, passes) -> None:
    assert judged([[5, 0], [1, 0]], [[0, 0], [1, 0]], values, dim=0, descending=False)[0] is passes


def test_one_candidate_has_no_order() -> None:
    assert judged([[4]], [[2]], [[1.0]])[0]


def test_only_the_first_are_listed() -> None:
    many = np.arange(20)
    _, message = judged(many, many + 1, many)
    assert "... and 10 more" in message


@pytest.mark.parametrize(
    ("actual", "expected", "values", "options", "says"),
    [
        ([0], [0, 1], [0.0], {}, "shape mismatch"),
        ([0], [0], [0.0, 1.0], {}, "shape mismatch"),
        ([0], [1], [0.0], {"dim": 1}, "out of range"),
    ],
)
def test_what_cannot_be_compared_fails(actual, expected, values, options, says) -> None:
    passed, message = judged(actual, expected, values, **options)
    assert not passed
    assert says in message


def test_the_values_must_be_an_output() -> None:
    context: dict[str, Any] = {"actual_outputs": {}, "expected_outputs": {}, "inputs": {}, "rtol": 0.0, "atol": 0.0}
    passed, message = topk_pair_compare("scores")(np.zeros(1), np.ones(1), **context)
    assert not passed
    assert "vals_name='scores'" in message
