from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuscope.tile.golden import ratio_allclose, validate_golden

f = np.float32


class Rows:
    """A run in which each row of four was written by a task of its own, and the last row by nobody."""

    def last_writer(self, name: str, flat_index: int) -> str | None:
        row = flat_index // 4
        return f"assemble at kernel.py:{10 + row} ('{name}')" if row < 8 else None


def test_each_output_gets_a_line(capsys) -> None:
    validate_golden({"y": np.ones((2, 3), f), "z": np.ones(1, np.int32)}, {"y": np.ones((2, 3), f), "z": np.ones(1)})
    assert capsys.readouterr().out.splitlines() == [
        "[RUN]   'y' PASS  shape=(2, 3) dtype=float32",
        "[RUN]   'z' PASS  shape=(1,) dtype=int32",
    ]


def test_all_outputs_are_judged_before_it_fails(capsys) -> None:
    outputs = {name: np.full(3, k, f) for k, name in enumerate("abc")}
    with pytest.raises(AssertionError, match=r"does not match golden: \['b', 'c'\]") as failure:
        validate_golden(outputs, {name: np.zeros(3, f) for name in "abc"})
    assert capsys.readouterr().out.count("FAIL") == 2
    assert "    Mismatched elements: 3/3  rtol=1e-05 atol=1e-05" in str(failure.value)


def test_a_mismatch_names_index_values_and_the_op_that_last_wrote_it() -> None:
    actual, expected = np.zeros((9, 4), f), np.zeros((9, 4), f)
    actual[1, 2], actual[8, 0] = 0.5, np.nan
    with pytest.raises(AssertionError) as failure:
        validate_golden({"y": actual}, {"y": expected}, run=Rows())
    assert str(failure.value).splitlines()[-2:] == [
        "    [6] (1, 2) actual=0.5, expected=0.0, last written by assemble at kernel.py:11 ('y')",
        "    [32] (8, 0) actual=nan, expected=0.0, never written",
    ]


def test_twenty_mismatches_are_listed() -> None:
    with pytest.raises(AssertionError) as failure:
        validate_golden({"y": np.ones(100, f)}, {"y": np.zeros(100, f)})
    assert str(failure.value).count("actual=") == 20


def test_our_comparators_name_the_op_too() -> None:
    actual, expected = np.zeros((8, 4), f), np.zeros((8, 4), f)
    actual[3, 1] = 2
    compare = {"y": ratio_allclose(max_error_ratio=0)}
    with pytest.raises(
        AssertionError, match=r"\[13\] \(3, 1\) actual=2, expected=0, .* last written by assemble at kernel.py:13"
    ):
        validate_golden({"y": actual}, {"y": expected}, compare_fn=compare, run=Rows())


def test_a_users_comparator_is_called_as_documented(capsys) -> None:
    seen: dict[str, Any] = {}

    def argmax_only(actual, expected, *, actual_outputs, expected_outputs, inputs, rtol, atol):
        seen.update(outputs=actual_outputs, goldens=expected_outputs, inputs=inputs, rtol=rtol, atol=atol)
        return actual.argmax() == expected.argmax(), "    another winner"

    outputs, goldens = {"y": np.array([1, 5], f)}, {"y": np.array([0, 9], f)}
    validate_golden(outputs, goldens, 0.1, 0.2, {"y": argmax_only}, {"x": 1})
    assert seen == {"outputs": outputs, "goldens": goldens, "inputs": {"x": 1}, "rtol": 0.1, "atol": 0.2}
    assert "'y' PASS  shape=(2,) dtype=float32 (argmax_only)" in capsys.readouterr().out
    with pytest.raises(AssertionError, match=r"'y' FAIL \(argmax_only\)  shape=.*\n    another winner"):
        validate_golden(outputs, {"y": np.array([9, 0], f)}, compare_fn={"y": argmax_only})


def test_what_cannot_be_compared_fails() -> None:
    with pytest.raises(AssertionError, match="the golden has no 'y'"):
        validate_golden({"y": np.ones(1)}, {"z": np.ones(1)})
    with pytest.raises(AssertionError, match=r"actual \(1,\), expected \(2,\)"):
        validate_golden({"y": np.ones(1)}, {"y": np.ones(2)})
