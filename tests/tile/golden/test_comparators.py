"""The comparators against their definitions, element by element in plain Python, and what a failed output says."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.tile.golden import (
    error_distribution,
    mapped_pool_ratio_allclose,
    mapped_pool_ratio_reldiff,
    ratio_allclose,
    ratio_reldiff,
    topk_pair_compare,
    validate_golden,
)
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


# --- top-k indices


def top_k(actual, expected, values, **options) -> tuple[bool, str]:
    outputs = {"vals": np.asarray(values, np.float32)}
    compare = topk_pair_compare("vals", **options)
    return compare(np.asarray(actual), np.asarray(expected), **{**CONTEXT, "actual_outputs": outputs})


@pytest.mark.parametrize(
    ("actual", "expected", "values", "options", "says"),
    [
        ([[0, 2, 1]], [[0, 1, 2]], [[3, 2, 2]], {}, None),  # ties may swap
        ([[4]], [[2]], [[1.0]], {}, None),  # one candidate has no order
        # a worse candidate; the second row is out of order too, but its indices are right
        ([[0, 9, 2], [0, 1, 2]], [[0, 1, 2]] * 2, [[3, 1, 2], [1, 2, 3]], {}, "1 position(s)"),
        ([[0, 9]], [[0, 1]], [[1, 2]], {}, "[0, 1] actual_idx=9 expected_idx=1 actual_score=2 neighbours=[1, 2]"),
        ([[5, 0], [1, 0]], [[0, 0], [1, 0]], [[1, 2], [2, 3]], {"dim": 0, "descending": False}, None),
        ([[5, 0], [1, 0]], [[0, 0], [1, 0]], [[1, 2], [0, 3]], {"dim": 0, "descending": False}, "ascending order"),
        (np.arange(20), np.arange(20) + 1, np.arange(20), {}, "... and 10 more"),
        ([0], [0, 1], [0.0], {}, "shape mismatch"),
        ([0], [0], [0.0, 1.0], {}, "shape mismatch"),
        ([0], [1], [0.0], {"dim": 1}, "out of range"),
    ],
)
def test_indices_may_differ_where_their_values_keep_their_order(actual, expected, values, options, says) -> None:
    passed, message = top_k(actual, expected, values, **options)
    assert passed is (says is None)
    assert (says or "") in message


def test_the_values_must_be_an_output() -> None:
    passed, message = topk_pair_compare("scores")(np.zeros(1), np.ones(1), **CONTEXT)
    assert not passed
    assert "vals_name='scores'" in message


# --- a paged cache: three blocks of two rows; the mapping names rows 1 and 4, -1 names none

MAPPING = np.array([1, -1, 4], np.int32)


def pool(ranks: int = 0) -> np.ndarray:
    shape = (3, 2, 4) if not ranks else (ranks, 3, 2, 4)
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def paged(actual, expected, mapping=MAPPING, **options) -> tuple[bool, str]:
    settings = {"mapping_shape": mapping.shape, "block_size": 2, "atol": 0.5, "rtol": 0.0, "max_error_ratio": 0.0}
    settings |= options
    return mapped_pool_ratio_allclose("slots", **settings)(
        actual, expected, **{**CONTEXT, "inputs": {"slots": mapping}}
    )


RANKS = {"mapping": np.array([[1, -1], [1, 0]]), "leading_rank_axis": True}


@pytest.mark.parametrize(
    ("place", "off", "options", "says"),
    [
        ((0, 1), 0.25, {}, None),  # a mapped row may be nearly right
        ((2, 0, 3), 1, {}, "mapped rows in pool from 'slots'"),
        ((2, 0, 3), 1, {}, "error_count=1/8"),  # of the two mapped rows of four
        ((1, 0, slice(2, None)), 0.25, {}, "unmapped physical pool row changed: row=2 changed_values=2"),
        ((0, 1, 0), np.nan, {}, "actual mapped rows in pool from 'slots' contain 1 non-finite"),
        ((), 0, {"mapping": np.array([-1, -1])}, None),
        ((), 0, RANKS, None),
        ((0, 0, 0), 0.25, RANKS, "rank=0 row=0"),  # which is mapped on rank 1 only
        # mappings that no allocator makes
        ((), 0, {"mapping": np.array([1, 1])}, "duplicate physical row 1"),
        ((), 0, {"mapping": np.array([1, 6])}, "'slots'[1]=6 is outside physical row range [0, 6)"),
        ((), 0, {"mapping": np.array([-2, 1])}, "'slots'[0]=-2 is invalid"),
        # pools that cannot be compared
        ((), 0, {"mapping": MAPPING.astype(np.float32)}, "integer dtype"),
        ((), 0, {"mapping_shape": (4,)}, "must have shape (4,)"),
        ((), 0, {"block_size": 3}, "block-major"),
    ],
)
def test_only_mapped_rows_may_change(place, off, options, says) -> None:
    expected = pool(2 if options is RANKS else 0)
    actual = expected.copy()
    actual[place] += off
    passed, message = paged(actual, expected, **options)
    assert passed is (says is None)
    assert (says or "") in message


def test_mapped_rows_by_their_relative_difference() -> None:
    compare = mapped_pool_ratio_reldiff("slots", mapping_shape=(3,), block_size=2, diff_thd=0.1, pct_thd=0.1)
    actual, context = pool(), {**CONTEXT, "inputs": {"slots": MAPPING}}
    actual[2, 0, 3] += 9  # one of eight elements
    assert compare(actual, pool(), **context) == (True, "")
    actual[2, 0, 2] += 9
    passed, message = compare(actual, pool(), **context)
    assert not passed
    assert "mapped rows in pool from 'slots'" in message
    actual = pool()
    actual[1, 0, 2] += 0.01
    assert "unmapped physical pool row changed" in compare(actual, pool(), **context)[1]


@pytest.mark.parametrize("bad", [{"mapping_shape": ()}, {"block_size": 0}, {"leading_rank_axis": True}])
def test_settings_are_checked_early(bad) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        mapped_pool_ratio_allclose("slots", **{"mapping_shape": (3,), "block_size": 2} | bad)


# --- all outputs of a run


class Rows:
    """A run in which each row of four was written by a task of its own, and the last row by nobody."""

    recording = SimpleNamespace(tasks=("rows",))

    def last_writer(self, name: str, flat_index: int) -> str | None:
        row = flat_index // 4
        return f"assemble at kernel.py:{10 + row} ('{name}')" if row < 8 else None


ROWS: Any = Rows()


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
        validate_golden({"y": actual}, {"y": expected}, run=ROWS)
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
        validate_golden({"y": actual}, {"y": expected}, compare_fn=compare, run=ROWS)


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


def test_outputs_that_cannot_be_compared_fail() -> None:
    with pytest.raises(AssertionError, match="the golden has no 'y'"):
        validate_golden({"y": np.ones(1)}, {"z": np.ones(1)})
    with pytest.raises(AssertionError, match=r"actual \(1,\), expected \(2,\)"):
        validate_golden({"y": np.ones(1)}, {"y": np.ones(2)})
