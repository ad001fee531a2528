"""A paged cache: three blocks of two rows; the mapping names rows 1 and 4, -1 names none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuscope.tile.golden import mapped_pool_ratio_allclose

MAPPING = np.array([1, -1, 4], np.int32)


def pool(ranks: int = 0) -> np.ndarray:
    shape = (3, 2, 4) if not ranks else (ranks, 3, 2, 4)
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def judged(actual, expected, mapping=MAPPING, **options) -> tuple[bool, str]:
    settings = {
        "mapping_shape": mapping.shape,
        "block_size": 2,
        "atol": 0.5,
        "rtol": 0.0,
        "max_error_ratio": 0.0,
    } | options
    context: dict[str, Any] = {"actual_outputs": {}, "expected_outputs": {}, "rtol": 0.0, "atol": 0.0}
    context["inputs"] = {"slots": mapping}
    return mapped_pool_ratio_allclose("slots", **settings)(actual, expected, **context)


def test_mapped_rows_may_be_nearly_right() -> None:
    actual = pool()
    actual[0, 1] += 0.25
    assert judged(actual, pool()) == (True, "")


def test_mapped_rows_may_not_be_wrong() -> None:
    actual = pool()
    actual[2, 0, 3] += 1
    passed, message = judged(actual, pool())
    assert not passed
    assert "mapped rows in pool from 'slots'" in message
    assert "error_count=1/8" in message  # of the two mapped rows of four


def test_other_rows_must_not_change_by_a_bit() -> None:
    actual = pool()
    actual[1, 0, 2:] += 0.25
    passed, message = judged(actual, pool())
    assert not passed
    assert "unmapped physical pool row changed: row=2 changed_values=2" in message


def test_each_rank_has_its_own_rows() -> None:
    mapping = np.array([[1, -1], [1, 0]])
    assert judged(pool(2), pool(2), mapping, leading_rank_axis=True)[0]
    actual = pool(2)
    actual[0, 0, 0] += 0.25  # row 0 is mapped on rank 1 only
    passed, message = judged(actual, pool(2), mapping, leading_rank_axis=True)
    assert not passed
    assert "rank=0 row=0" in message


@pytest.mark.parametrize(
    ("mapping", "says"),
    [
        ([1, 1], "duplicate physical row 1"),
        ([1, 6], r"'slots'[1]=6 is outside physical row range [0, 6)"),
        ([-2, 1], "'slots'[0]=-2 is invalid"),
    ],
)
def test_a_mapping_that_no_allocator_makes_fails(mapping, says) -> None:
    passed, message = judged(pool(), pool(), np.array(mapping))
    assert not passed
    assert says in message


def test_no_mapped_row_and_nothing_changed_passes() -> None:
    assert judged(pool(), pool(), np.array([-1, -1])) == (True, "")


def test_nan_counts_only_in_mapped_rows() -> None:
    actual = pool()
    actual[0, 1, 0] = np.nan
    passed, message = judged(actual, pool())
    assert not passed
    assert "actual mapped rows in pool from 'slots' contain 1 non-finite" in message


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"mapping": MAPPING.astype(np.float32)}, "integer dtype"),
        ({"mapping_shape": (4,)}, "must have shape (4,)"),
        ({"block_size": 3}, "block-major"),
    ],
)
def test_what_cannot_be_compared_fails(options, says) -> None:
    passed, message = judged(pool(), pool(), **options)
    assert not passed
    assert says in message


@pytest.mark.parametrize("bad", [{"mapping_shape": ()}, {"block_size": 0}, {"leading_rank_axis": True}])
def test_settings_are_checked_early(bad) -> None:
    with pytest.raises(ValueError, match=next(iter(bad))):
        mapped_pool_ratio_allclose("slots", **{"mapping_shape": (3,), "block_size": 2} | bad)
