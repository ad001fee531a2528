"""Two strided boxes share an element or they do not; bounds alone would say too often that they do."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from npuscope.tile.graph import Box, overlaps

AXES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 7)), max_size=3)
BOXES = st.builds(
    lambda offset, axes: Box(0, offset, tuple(n for n, _ in axes), tuple(s for _, s in axes)), st.integers(0, 30), AXES
)


def elements(box: Box) -> set[int]:
    found = np.array([box.offset])
    for size, stride in zip(box.shape, box.strides, strict=True):
        found = np.add.outer(found, np.arange(size) * stride).ravel()
    return set(found.tolist())


@given(BOXES, BOXES)
def test_overlap_is_a_shared_element(a: Box, b: Box) -> None:
    assert overlaps(a, b) == bool(elements(a) & elements(b))


def test_tiles_side_by_side_are_apart_though_their_ranges_cross() -> None:
    # GIVEN columns 0…63 and 64…127 of all 16 rows of a [16, 128] tensor
    left, right = Box(0, 0, (16, 64), (128, 1)), Box(0, 64, (16, 64), (128, 1))
    assert not overlaps(left, right)
    assert overlaps(left, Box(0, 63, (16, 64), (128, 1)))
    # a column of the right half, read transposed
    assert overlaps(right, Box(0, 64 + 5, (1, 16), (1, 128)))
    assert not overlaps(left, Box(0, 64 + 5, (1, 16), (1, 128)))


def test_boxes_of_other_buffers_never_meet() -> None:
    assert not overlaps(Box(0, 0, (4,), (1,)), Box(1, 0, (4,), (1,)))
