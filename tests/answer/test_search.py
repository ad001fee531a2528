"""A search finds what trying everything finds, with a tenth of the trials; it never asks for a point twice."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.answer.search import Goals, Point, Search, SearchSpace, front, space_of

TILES = ("16", "32", "64", "96", "128", "256")
SPACE = space_of([("M", TILES, "64"), ("N", TILES, "64"), ("K", TILES, "64"), ("STAGE", ("1", "2", "3"), "1")])
CHIPS = [(64 * 1024, 3.0, 1.0), (96 * 1024, 1.0, 4.0), (48 * 1024, 6.0, 2.0), (128 * 1024, 2.0, 8.0)]


def time_of(point: Point, room: int, memory: float, waits: float) -> float | None:
    """Like a product in tiles: the loads of a tile against its work, waits for a pipeline, a part-filled last wave."""
    m, n, k, stages = (int(value) for _, value in SPACE.at(point))
    if stages * (m + n) * k * 2 > 8 * room or m * n * 4 > 2 * room:
        return None
    blocks = (512 // m + (512 % m > 0)) * (3072 // n + (3072 % n > 0))
    waves = math.ceil(blocks / 24)
    turn = max(memory * (m + n) * k / 1000, m * n * k / 50_000) + waits / stages + (20 if n * 2 < 512 else 0)
    return waves * (2048 / k * turn + 3)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_tenth_of_the_trials_comes_within_two_per_cent_of_the_best(chip: tuple[int, float, float], seed: int) -> None:
    everything = [tuple(point) for point in product(*(range(len(values)) for _, values in SPACE.settings))]
    times = {point: time_of(point, *chip) for point in everything}
    best = min(time for time in times.values() if time is not None)
    search, found = Search(SPACE, seed=seed), list[float]()
    while len(found) < sum(time is not None for time in times.values()) // 10:
        point = search.ask()
        assert point is not None
        time = times[point]
        search.answer(point, None if time is None else (time,))
        found += [] if time is None else [time]
    assert min(found) <= 1.02 * best


@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.integers(0, 5))
def test_every_point_is_asked_for_once_and_the_first_is_the_start(sizes: list[int], seed: int) -> None:
    space = SearchSpace(
        tuple((f"s{n}", tuple(map(str, range(size)))) for n, size in enumerate(sizes)), (0,) * len(sizes)
    )
    search, asked = Search(space, seed=seed), []
    while (point := search.ask()) is not None:
        asked.append(point)
        search.answer(point, (float(sum(point)),) if sum(point) % 2 else None)
    assert asked[0] == space.start
    assert len(asked) == len(set(asked)) == space.size


def test_two_goals_find_both_ends_of_the_front() -> None:
    # GIVEN time and memory that pull apart: the fastest point is the largest, the smallest the slowest
    space = space_of([(name, [str(n) for n in range(8)], "3") for name in ("a", "b", "c")])
    search, reached = Search(space), dict[Point, Goals]()
    for _ in range(space.size // 10):
        point = search.ask()
        assert point is not None
        reached[point] = (1000.0 / (1 + sum(point)), float(sum(point)))
        search.answer(point, reached[point])
    # THEN the front reaches near both
    sums = sorted(sum(point) for point in front(reached))
    assert sums[0] <= 2
    assert sums[-1] >= 19


@pytest.mark.full
def test_of_a_space_too_large_to_look_through_the_best_is_still_found() -> None:
    # GIVEN 8 settings of 8 values, 16.8 million points, each best at one value of its own, two of them together
    space = space_of([(f"s{n}", [str(value) for value in range(8)], "0") for n in range(8)])
    search, found = Search(space), []
    for _ in range(120):
        point = search.ask()
        assert point is not None
        far = sum((value - 3) ** 2 for value in point) + abs(point[0] - point[1])
        search.answer(point, (100.0 + far,))
        found.append(far)
    # THEN what is left of the start's distance of 72 is small
    assert found[0] == 72
    assert min(found) <= 3


def test_the_same_seed_and_answers_give_the_same_points() -> None:
    def points() -> list[Point | None]:
        search, asked = Search(SPACE, seed=7), []
        for _ in range(30):
            asked.append(point := search.ask())
            assert point is not None
            time = time_of(point, *CHIPS[0])
            search.answer(point, None if time is None else (time,))
        return asked

    assert points() == points()


def test_the_front_has_what_nothing_beats_in_both() -> None:
    reached: dict[tuple[int, ...], tuple[float, ...]] = {
        (0,): (1.0, 9.0),
        (1,): (2.0, 2.0),
        (2,): (3.0, 3.0),
        (3,): (9.0, 1.0),
    }
    assert sorted(front(reached)) == [(0,), (1,), (3,)]
