"""The comparators against their definitions, element by element in plain Python."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.tile.golden import error_distribution, ratio_allclose, ratio_reldiff
from npuscope.tile.golden.comparators import close

CONTEXT: dict[str, Any] = {"actual_outputs": {}, "expected_outputs": {}, "inputs": {}, "rtol": 1e-5, "atol": 1e-5}
values = st.floats(-100, 100, width=32)
pairs = st.lists(st.tuples(values, values | st.none()), min_size=1, max_size=40)
f = np.float32


def arrays(drawn) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of values, many of them nearly equal."""
    expected = np.array([a if e is None else e for a, e in drawn], f)
    actual = np.array([a * f(1.001) if e is None else a for a, e in drawn], f)
    return actual, expected


@given(
    pairs, st.sampled_from([0.0, 1e-3, 0.1]), st.sampled_from([0.0, 1e-3, 0.1]), st.sampled_from([0.0, 0.1, 0.5, 1.0])
)
def test_ratio_allclose_counts_what_is_out_of_tolerance(drawn, atol, rtol, share) -> None:
    actual, expected = arrays(drawn)
    bad = sum(abs(a - e) > f(atol) + f(rtol) * abs(e) for a, e in zip(actual, expected, strict=True))
    passed, message = ratio_allclose(atol, rtol, share)(actual, expected, **CONTEXT)
    assert passed == (bad <= round(share * len(actual)))
    assert passed or f"error_count={bad}/{len(actual)}" in message


@given(pairs, st.sampled_from([1e-3, 0.01, 0.3]), st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from([0.4, math.inf]))
def test_ratio_reldiff_is_relative_only_above_its_threshold(drawn, threshold, share, cap) -> None:
    actual, expected = arrays(drawn)
    relative = []
    for a, e in zip(actual, expected, strict=True):
        off = abs(a - e)
        size = max(abs(a), abs(e), f(2**-14 / threshold)) + f(1e-9)
        relative.append(off if off < f(threshold) else off / size)
    bad = [r for r in relative if r > f(threshold)]
    passed, _ = ratio_reldiff(threshold, share, cap)(actual, expected, **CONTEXT)
    assert passed == (len(bad) <= round(share * len(actual)) and max(bad, default=0.0) < cap)


@pytest.mark.parametrize("compare", [ratio_allclose(1, 1, 1.0), ratio_reldiff(1.0, 1.0)])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("side", [0, 1])
def test_no_share_excuses_what_is_not_finite(compare, bad, side) -> None:
    tensors = [np.zeros(1000, f), np.zeros(1000, f)]
    tensors[side][7] = bad
    passed, message = compare(*tensors, **CONTEXT)
    assert not passed
    assert "illegal values" in message


@pytest.mark.parametrize("make", [ratio_allclose, ratio_reldiff])
def test_rows_that_hold_nothing_are_left_out(make) -> None:
    expected = np.zeros((4, 2, 3), f)
    actual = expected.copy()
    actual[:, 1] = 5  # past one valid row of axis 1
    strict = {"max_error_ratio": 0} if make is ratio_allclose else {"pct_thd": 0}
    assert not make(**strict)(actual, expected, **CONTEXT)[0]
    assert make(**strict, valid_rows=1, valid_axis=1)(actual, expected, **CONTEXT) == (True, "")
    assert make(**strict, valid_rows=0)(actual, expected, **CONTEXT) == (True, "")
    passed, message = make(**strict, valid_rows=1, valid_axis=1, zero_tail=True)(actual, expected, **CONTEXT)
    assert not passed
    assert "12 nonzero" in message  # 4 x 1 x 3 elements past the valid row
    assert "out of range" in make(valid_rows=5)(actual, expected, **CONTEXT)[1]


def test_a_mismatch_behind_valid_rows_has_its_place_in_the_whole() -> None:
    expected = np.zeros((2, 4), f)
    actual = expected.copy()
    actual[1, 2] = 3
    _, message = ratio_allclose(max_error_ratio=0, valid_rows=3, valid_axis=1)(actual, expected, **CONTEXT)
    assert "    [6] (1, 2) actual=3, expected=0, diff=3, tol=1e-05" in message  # 1 * 4 + 2
    assert "max abs diff=3 at (1, 2)" in message


def test_tolerances_left_out_are_the_runs() -> None:
    actual, expected = np.array([1.05], f), np.array([1.0], f)
    assert not ratio_allclose()(actual, expected, **CONTEXT)[0]
    assert ratio_allclose()(actual, expected, **{**CONTEXT, "rtol": 0.1})[0]


def test_bf16_is_compared_in_fp32() -> None:
    expected = np.full(100, 1.0, ml_dtypes.bfloat16)
    actual = np.full(100, 1.0078125, ml_dtypes.bfloat16)  # one ulp off: 2**-7
    assert ratio_allclose(atol=2**-7, rtol=0, max_error_ratio=0)(actual, expected, **CONTEXT)[0]
    assert not ratio_allclose(atol=2**-8, rtol=0, max_error_ratio=0)(actual, expected, **CONTEXT)[0]


@pytest.mark.parametrize("bad", [{"max_error_ratio": 1.1}, {"max_error_ratio": -0.1}])
def test_shares_are_shares(bad) -> None:
    with pytest.raises(ValueError, match="max_error_ratio"):
        ratio_allclose(**bad)


@pytest.mark.parametrize("bad", [{"diff_thd": 0}, {"pct_thd": 2}, {"max_diff_hd": 0}])
def test_thresholds_are_thresholds(bad) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        ratio_reldiff(**bad)


def test_close_treats_special_values_and_integers_exactly() -> None:
    special = np.array([np.inf, np.inf, np.nan, 0.0, 1e38], f)
    other = np.array([np.inf, -np.inf, np.nan, -0.0, -3e38], f)
    assert close(special, other, 1e-5, 1e-5).tolist() == [True, False, False, True, False]
    big = np.array([2**62, 2**62 + 1, -(2**63)], np.int64)
    assert close(big, np.array([2**62, 2**62, 2**63 - 1], np.int64), 0, 0).tolist() == [True, False, False]
    assert close(np.array([-128], np.int8), np.array([127], np.int8), 0, 1).tolist() == [False]


def test_the_distribution_of_errors_is_printed_and_passes(capsys) -> None:
    expected = np.array([3.0, 4.0], f)
    actual = np.array([3.0, 4.4], f)
    assert error_distribution(diff_thds=(0.05, 0.2), quantiles=(0.5, 1.0))(actual, expected, **CONTEXT) == (True, "")
    # rel-L2 0.4 / 5 = 8 %; cosine (3·3 + 4·4.4) / (5 · √(3² + 4.4²)); relative difference of the second 0.4 / 4.4
    assert capsys.readouterr().out.splitlines() == [
        "rel-L2 = 8.0000%  cosine = 0.9989840  numel=2",
        "  diff_thd=5e-02  frac>thd=50.0000%  worst=0.0909",
        "  diff_thd=2e-01  frac>thd=0.0000%  worst=0",
        "  rel-diff percentiles: p50=0.0455  p100=0.0909",
        "  abs-diff percentiles: p50=0.2  p100=0.4",
        "  |golden| percentiles: p50=3.5  p100=4",
    ]


@pytest.mark.parametrize("always", [True, False])
def test_the_distribution_fails_only_for_nan_and_only_if_told(always, capsys) -> None:
    passed, _ = error_distribution(always_pass=always)(np.array([np.nan], f), np.ones(1, f), **CONTEXT)
    assert passed is always
    assert "NaN=1" in capsys.readouterr().out
