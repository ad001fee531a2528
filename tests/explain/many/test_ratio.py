"""Intervals cover the true ratio as often as they say, whatever the noise; undecided ones say what would decide."""

from math import exp, isclose, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise import NOISES
from scipy import stats

from npuscope.explain.many.ratio import holm, ratio_of

TRIALS = 400
# a method that covers 95 times in 100 covers fewer than this of 400 once in a thousand such tests
LEAST = int(stats.binom.ppf(0.001, TRIALS, 0.95))


@pytest.mark.parametrize("runs", [3, 4, 5, 8, 20])
@pytest.mark.parametrize("name", NOISES)
def test_the_interval_has_the_true_ratio_as_often_as_it_says(name: str, runs: int) -> None:
    rng = np.random.default_rng(runs)
    a, b = (np.exp(NOISES[name](rng, TRIALS, runs)) for _ in range(2))
    found = [ratio_of(100 * x, 107 * y) for x, y in zip(a, b, strict=True)]
    assert sum(one.low <= 1.07 <= one.high for one in found) >= LEAST


@pytest.mark.parametrize("name", NOISES)
def test_a_single_run_is_held_against_the_noise_of_the_others(name: str) -> None:
    rng = np.random.default_rng(7)
    drawn = np.exp(NOISES[name](rng, TRIALS, 13))
    found = [ratio_of(row[:12], row[12:]) for row in drawn]
    # one spike is one run that really was disturbed: its tail is outside, and that is said in docs/understand/noise.md
    least = LEAST if name != "spiked" else int(stats.binom.ppf(0.001, TRIALS, 0.9))
    assert sum(one.low <= 1 <= one.high for one in found) >= least


def test_it_is_yuens_interval() -> None:
    rng = np.random.default_rng(1)
    a, b = np.exp(0.1 * rng.normal(size=15)), np.exp(0.2 * rng.normal(size=11))
    found = ratio_of(a.tolist(), b.tolist())
    theirs = stats.ttest_ind(np.log(b), np.log(a), equal_var=False, trim=0.2)
    assert isclose(found.p, theirs.pvalue, rel_tol=1e-9)
    ends = theirs.confidence_interval(0.95)
    assert isclose(log(found.low), ends.low, rel_tol=1e-9)
    assert isclose(log(found.high), ends.high, rel_tol=1e-9)


positive = st.lists(st.floats(1.0, 1e9), min_size=3, max_size=8)


@given(positive, positive)
def test_b_against_a_is_a_against_b_turned(a: list[float], b: list[float]) -> None:
    one, two = ratio_of(a, b), ratio_of(b, a)
    assert isclose(one.value * two.value, 1, rel_tol=1e-9)
    assert isclose(one.low * two.high, 1, rel_tol=1e-6)
    turned = {"faster": "slower", "slower": "faster", "undecided": "undecided"}
    assert two.verdict == turned[one.verdict]


def test_too_few_runs_decide_nothing_unless_their_noise_is_told() -> None:
    found = ratio_of([100.0], [150.0, 151.0])
    assert (found.verdict, found.has_interval, found.more_runs) == ("undecided", False, None)
    assert found.as_dict()["low"] is None
    told = ratio_of([100.0], [150.0], noise=0.05)
    assert told.verdict == "slower"
    # two runs that are each off by up to 5 % differ by up to 7 %
    assert isclose(log(told.high / told.value), 0.05 * 2**0.5, rel_tol=1e-6)


def test_runs_without_noise_differ_or_they_do_not() -> None:
    assert ratio_of([10.0] * 3, [10.0] * 3).verdict == "undecided"
    assert ratio_of([10.0] * 3, [10.1] * 3).verdict == "slower"


@pytest.mark.parametrize("difference", [0.02, 0.05])
def test_as_many_more_runs_as_it_asks_for_decide_it(difference: float) -> None:
    # GIVEN noise of 3 % and pairs of three runs that are undecided about a real difference
    rng = np.random.default_rng(3)
    asked, decided = [], 0
    for _ in range(400):
        a, b = (np.exp(0.03 * rng.normal(size=3) + shift).tolist() for shift in (0, log(1 + difference)))
        if isclose(ratio_of(a, b).value, 1 + difference, rel_tol=0.004):  # the difference is as large as it looks
            asked.append(ratio_of(a, b).more_runs or 0)
    # WHEN so many more are run as is asked for in the middle
    more = int(np.median(asked))
    for _ in range(400):
        a, b = (np.exp(0.03 * rng.normal(size=3 + more) + shift).tolist() for shift in (0, log(1 + difference)))
        decided += ratio_of(a, b).verdict == "slower"
    # THEN that decides about four times in five
    assert 0.65 < decided / 400 < 0.95


def test_equal_runs_are_never_said_to_be_decided_by_more() -> None:
    assert ratio_of([1.0, 1.1, 1.2], [1.0, 1.1, 1.2]).more_runs is None


def test_holm_by_hand() -> None:
    # sorted: 0.01 × 4, 0.02 × 3, 0.03 × 2, 0.5; none smaller than the one before
    assert holm([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.06, 0.04, 0.5, 0.06])


@pytest.mark.parametrize("name", NOISES)
def test_a_table_of_many_kernels_has_a_false_alarm_in_one_of_twenty(name: str) -> None:
    rng = np.random.default_rng(11)
    tables, kernels, alarms = 120, 24, 0
    for _ in range(tables):
        a, b = (np.exp(NOISES[name](rng, kernels, 5)) for _ in range(2))
        alarms += min(holm([ratio_of(x, y).p for x, y in zip(a, b, strict=True)])) <= 0.05
    assert alarms <= stats.binom.ppf(0.999, tables, 0.05)


def test_largest_difference_is_what_the_interval_allows() -> None:
    found = ratio_of([100, 101, 102], [100, 101, 102])
    assert isclose(found.largest_difference, found.high - 1)
    assert exp(0) == found.value
