"""Sorting and merging against a merge written out pair by pair; gathers and scatters against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuscope.ops import sorting

Pair = tuple[float, int]


def ramp(width: int, start: int = 0) -> np.ndarray:
    return np.arange(start, start + width, dtype=np.uint32)[None]


def row_of(pairs: list[Pair]) -> np.ndarray:
    row = np.zeros((1, 2 * len(pairs)), np.float32)
    row[0, ::2] = [value for value, _ in pairs]
    row.view(np.uint32)[0, 1::2] = [index for _, index in pairs]
    return row


def pairs_of(row: np.ndarray) -> list[Pair]:
    return list(zip(row[0, ::2].tolist(), row.view(np.uint32)[0, 1::2].tolist(), strict=True))


def merged(lists: list[list[Pair]], exhausted: bool = False) -> list[Pair]:
    """The largest head, of equal ones the first list's, until all is taken or, if asked, one list has run out."""
    lists = [list(part) for part in lists]
    out: list[Any] = []
    while any(lists) and not (exhausted and out and not all(lists)):
        heads = [part[0][0] if part else -np.inf for part in lists]
        best = max((at for at, part in enumerate(lists) if part), key=lambda at: (heads[at], -at))
        out.append(lists[best].pop(0))
    return out


small = st.integers(-3, 3).map(float)  # few values, many ties
indices = st.integers(0, 2**32 - 1)  # every pattern, also those that are NaN as a float


@given(st.lists(small, min_size=96, max_size=96), st.integers(0, 2**32 - 200))
def test_sort32_sorts_runs_of_32_and_keeps_the_order_of_equals(values: list[float], start: int) -> None:
    result = pairs_of(sorting.sort32(np.array([values], np.float32), ramp(96, start)))
    pairs = list(zip(values, range(start, start + 96), strict=True))
    for run in range(0, 96, 32):
        assert result[run : run + 32] == sorted(pairs[run : run + 32], key=lambda pair: -pair[0])


@given(st.lists(st.tuples(small, indices), min_size=32, max_size=32), st.sampled_from([2, 4, 8, 16]), st.booleans())
def test_mrgsort_of_blocks_is_a_merge_of_four(pairs: list[Pair], length: int, ordered: bool) -> None:
    """Also of blocks that are not sorted, as after a wrong block length."""
    blocks = [pairs[at : at + length] for at in range(0, 32, length)]
    if ordered:
        blocks = [sorted(block, key=lambda pair: -pair[0]) for block in blocks]
    row = row_of([pair for block in blocks for pair in block])
    before = row.copy()
    wanted = [pair for at in range(0, len(blocks), 4) for pair in merged(blocks[at : at + 4])]
    assert pairs_of(sorting.mrgsort_blocks(row, 2 * length)) == wanted
    np.testing.assert_array_equal(row.view(np.uint32), before.view(np.uint32))


@given(
    st.lists(st.lists(st.tuples(small, indices), min_size=1, max_size=9), min_size=2, max_size=4),
    st.booleans(),
    st.booleans(),
)
def test_mrgsort_of_lists(lists: list[list[Pair]], ordered: bool, exhausted: bool) -> None:
    if ordered or exhausted:
        lists = [sorted(part, key=lambda pair: -pair[0]) for part in lists]
    result = sorting.mrgsort_lists([row_of(part) for part in lists], exhausted)
    wanted = merged(lists, exhausted)
    assert result.shape == (1, 2 * sum(map(len, lists)))
    assert pairs_of(result)[: len(wanted)] == wanted
    assert np.isnan(result[0, 2 * len(wanted) :]).all()


@pytest.mark.parametrize("width", [512, 2048])
def test_top_k_of_a_row(width: int) -> None:
    """The public top-k programs: sort32, merges of four until one run is left, then the first pairs split by masks."""
    rng = np.random.default_rng(width)
    scores = rng.standard_normal((1, width), dtype=np.float32)
    scores[0, rng.integers(0, width, 30)] = 2.5  # ties
    scores[0, :3] = -np.inf
    pairs = sorting.sort32(scores, ramp(width))
    block = 64
    while block < pairs.size:
        pairs = sorting.mrgsort_blocks(pairs, block)
        block *= 4
    wanted = np.argsort(-scores[0], kind="stable")
    top = pairs[:, :128]
    indices = sorting.gather_mask(top, 2, np.dtype(np.int32))
    assert indices.dtype == np.int32
    np.testing.assert_array_equal(indices[0], wanted[:64])
    np.testing.assert_array_equal(sorting.gather_mask(top, 1)[0], scores[0, wanted[:64]])


def test_top_experts_of_a_gate() -> None:
    """DeepSeek's gate: 256 scores, four-way merge of runs of 32, then a merge of the two halves."""
    scores = np.random.default_rng(3).integers(0, 50, (1, 256)).astype(np.float32)
    pairs = sorting.mrgsort_blocks(sorting.sort32(scores, ramp(256)), 64)
    pairs = sorting.mrgsort_lists([pairs[:, :256], pairs[:, 256:]])
    np.testing.assert_array_equal(
        sorting.gather_mask(pairs, 2, np.dtype(np.int32))[0], np.argsort(-scores[0], kind="stable").astype(np.int32)
    )


def test_nan_sorts_last() -> None:
    scores = np.arange(32, dtype=np.float32)[None]
    scores[0, [3, 31]] = np.nan
    order = sorting.gather_mask(sorting.sort32(scores, ramp(32)), 2, np.dtype(np.int32))
    assert order[0, :3].tolist() == [30, 29, 28]
    assert order[0, -2:].tolist() == [3, 31]


def test_mask_patterns_name_columns_and_scatter_is_the_inverse() -> None:
    x = np.arange(16, dtype=np.float32).reshape(2, 8)
    named = {1: [0, 2, 4, 6], 2: [1, 3, 5, 7], 3: [0, 4], 4: [1, 5], 5: [2, 6], 6: [3, 7], 7: list(range(8))}
    for pattern, columns in named.items():
        picked = sorting.gather_mask(x, pattern)
        np.testing.assert_array_equal(picked, x[:, columns])
        target = np.full((2, 8), -1, np.float32)
        scattered = sorting.scatter_mask(target, picked, pattern)
        np.testing.assert_array_equal(scattered[:, columns], picked)
        assert np.count_nonzero(scattered == -1) == 16 - picked.size
        assert (target == -1).all()


@given(st.integers(1, 6), st.integers(1, 9), st.integers(1, 12), st.integers(0, 2**32))
def test_gather_by_index(rows: int, columns: int, picks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((rows, columns), dtype=np.float32)
    index = rng.integers(0, columns, (rows, picks)).astype(np.int32)
    by_row = sorting.gather(x, index)
    assert by_row.tolist() == [[x[i, k].item() for k in index[i]] for i in range(rows)]
    assert sorting.gather(x, index[:1]).shape == (1, picks)
