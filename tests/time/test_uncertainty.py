"""Error bars: they cover what they say on commits that did not teach them, and A against B is B against A."""

from __future__ import annotations

import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.base.errors import BadInput
from npuscope.time.bound import KIND_OF
from npuscope.time.uncertainty import (
    LEAST,
    SHIFTED,
    Miss,
    Misses,
    Spread,
    against,
    known_misses,
    left_out,
    ratio_inside,
    read_misses,
    time_estimate,
    time_inside,
    write_misses,
)

walls = st.floats(1, 1e9)
bounds = st.sampled_from(sorted(set(KIND_OF.values())))


def drawn(commits: int, rows: int, seed: int, growth: float = 0.3) -> Misses:
    """Made-up misses: of ratios twice as wide at large changes, of times to one side, rows of a commit alike."""
    random = np.random.default_rng(seed)
    found = []
    for commit in range(commits):
        common = random.standard_normal()
        for _ in range(1 + int(random.integers(rows))):
            change = float(random.normal(-0.2, 0.3))
            z = (common + random.standard_normal()) / math.sqrt(2)
            before, after = random.normal(0.2, 0.3, 2)
            miss = float(z * (0.05 + growth * abs(change)))
            found.append(
                Miss(f"c{commit}", "wall", "bandwidth", "bandwidth", change, miss, float(before), float(after))
            )
    return Misses(tuple(found))


@given(walls, bounds, st.sampled_from(("wall", "kernel")))
def test_a_time_lies_in_its_interval(time: float, bound: str, quantity: str) -> None:
    one = time_estimate(time, quantity, bound)
    assert one.low <= one.value <= one.high
    assert one.value == time


@given(walls, walls, bounds, bounds)
def test_a_against_b_says_the_same_as_b_against_a(a: float, b: float, bound_a: str, bound_b: str) -> None:
    there, back = against(a, b, bound_a, bound_b), against(b, a, bound_b, bound_a)
    assert there.faster + back.faster == pytest.approx(1)
    assert there.ratio.low <= there.ratio.value <= there.ratio.high
    assert there.ratio.low == pytest.approx(1 / back.ratio.high)
    assert {there.verdict, back.verdict} in ({"undecided"}, {"faster", "slower"})


@given(walls, bounds)
def test_equals_are_undecided(wall: float, bound: str) -> None:
    same = against(wall, wall, bound, bound)
    assert same.faster == 0.5
    assert same.verdict == "undecided"


@given(walls, st.floats(0.05, 20), st.floats(0.05, 20), bounds)
def test_who_takes_longer_is_not_likelier_to_be_faster(wall: float, one: float, other: float, bound: str) -> None:
    low, high = sorted((one, other))
    quick, slow = (against(wall, wall * ratio, bound, bound) for ratio in (low, high))
    assert quick.faster >= slow.faster - 1e-12


@given(st.floats(0.05, 20), bounds)
def test_what_is_decided_is_outside_the_noise_and_has_an_interval_without_one(ratio: float, bound: str) -> None:
    found = against(1000, 1000 * ratio, bound, bound)
    if found.verdict != "undecided":
        assert abs(math.log(ratio)) >= 0.03
        assert not found.ratio.low <= 1 <= found.ratio.high
        assert (found.verdict == "faster") == (ratio < 1)


def test_a_small_change_is_within_the_noise_whatever_the_misses_say() -> None:
    exact = Misses(tuple(Miss(f"c{n}", "wall", "core", "core", -0.3, 0.0, 0.0, 0.0) for n in range(20)))
    assert against(100, 98, "core", "core", exact).verdict == "undecided"
    assert against(100, 80, "core", "core", exact).verdict == "faster"


@pytest.mark.parametrize(("inside", "name"), [(ratio_inside, "ratio"), (time_inside, "time")])
def test_left_out_commits_are_covered_as_often_as_the_interval_says(inside: Any, name: str) -> None:
    """By itself a set of 40 commits may be off by chance; the mean over many sets may not."""
    shares = [left_out(drawn(40, 4, seed), inside).share for seed in range(25)]
    assert 0.77 < float(np.mean(shares)) < 0.83, name
    assert sum(0.7 <= share <= 0.9 for share in shares) >= 23


def test_few_commits_are_made_up_for_by_a_wider_interval() -> None:
    shares = [left_out(drawn(12, 2, seed), ratio_inside).share for seed in range(60)]
    assert 0.76 < float(np.mean(shares)) < 0.86


def test_larger_changes_have_wider_intervals_where_they_are_missed_by_more() -> None:
    misses = drawn(60, 3, 1)
    least, growth = misses.scale
    assert least == pytest.approx(0.05, abs=0.03)  # the median of |z| is 0.67 of its deviation, with the noise as floor
    assert growth == pytest.approx(0.3 * 0.67, abs=0.12)

    def width(ratio: float) -> float:
        found = against(1, ratio, "bandwidth", "bandwidth", misses).ratio
        return math.log(found.high / found.low)

    assert width(0.4) > 1.5 * width(0.98)


def test_a_commit_counts_as_one_however_many_rows_it_has() -> None:
    spread = Spread.of([1.0, 2.0, 3.0, 3.0, 3.0, 3.0], ["a", "b", "c", "c", "c", "c"])
    assert spread.reached[-1] == pytest.approx(3 / 4)  # three commits, and one to come
    assert spread.at(0.5) == 2.0
    assert spread.share(2.0) == pytest.approx(0.5)


def test_a_kind_with_few_commits_takes_all_and_says_so() -> None:
    many = [Miss(f"m{n}", "wall", "bandwidth", "bandwidth", -0.1, 0.1, 0.1, 0.1) for n in range(LEAST)]
    few = [Miss(f"f{n}", "wall", "core", "core", -0.1, 0.5, 0.5, 0.5) for n in range(LEAST - 1)]
    misses = Misses((*many, *few))
    known, poor = (time_estimate(1.0, "wall", bound, misses).basis for bound in ("bandwidth", "core"))
    assert (known.bound, known.rows, known.commits) == ("bandwidth", 2 * LEAST, LEAST)
    assert (poor.bound, poor.commits) == (None, 2 * LEAST - 1)
    shifted = against(1.0, 0.9, "bandwidth", "core", misses).ratio.basis
    assert shifted.bound is None  # no row is like that either
    assert misses.rows[0].kind == "bandwidth"
    assert Miss("c", "wall", "bandwidth", "core", 0, 0).kind == SHIFTED
    assert time_estimate(1.0, "kernel", "core", misses).basis.quantity == "any"


def test_a_tail_is_as_sure_as_a_dependency() -> None:
    waits = [Miss(f"m{n}", "wall", "dependency", "tail", -0.1, 0.1, 0.1, 0.1) for n in range(LEAST)]
    misses = Misses((*waits, *(Miss(f"f{n}", "wall", "core", "core", -0.1, 0.5, 0.5, 0.5) for n in range(LEAST))))
    assert time_estimate(1.0, "wall", "tail", misses) == time_estimate(1.0, "wall", "dependency", misses)
    assert time_estimate(1.0, "wall", "tail", misses).basis.bound == "dependency"
    assert against(1.0, 0.9, "tail", "dependency", misses).ratio.basis.commits == LEAST


def test_the_file_that_comes_with_npuscope_is_whole_and_survives_a_round_trip() -> None:
    known = known_misses()
    assert len({row.commit for row in known.rows}) >= LEAST
    assert all(abs(row.change) < 5 for row in known.rows)
    target = io.StringIO()
    write_misses(known.rows, target, "again")
    assert read_misses(io.StringIO(target.getvalue())) == known


HEAD = "commit,quantity,bound_before,bound_after,change,ratio,before,after\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("commit,miss\n", "its columns must be commit, quantity"),
        (HEAD, "fewer than 10 commits"),
        (HEAD + "a,span,cube,cube,0,0,,\n", "row 1 of the misses: the quantity is 'span'"),
        (HEAD + "a,wall,core,luck,0,0,,\n", "bound_after is 'luck'"),
        (HEAD + "a,wall,core,core,0,soon,,\n", "row 1 of the misses"),
        (HEAD + "a,wall,core,core,,0,,\n", "must be numbers"),
        (HEAD + "a,wall,core,core,0,nan,,\n", "must be numbers"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused(text: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_misses(io.StringIO(text))
