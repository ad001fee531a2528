"""Which lines of GM a block reads: a line is fetched from HBM once."""

from __future__ import annotations

import numpy as np

from npuscope.tile.record.model import Access
from npuscope.time.chip.prepare import distinct_lines


def box(rows: int, columns: int, stride: int) -> Access:
    return Access(0, "read", (rows, columns), (stride, 1))


def test_narrow_columns_beside_one_another_share_their_lines() -> None:
    # 64 columns of bf16 are 128 B of a 512-B line: four column blocks read the same 16 lines
    boxes = [(box(16, 64, 4096), np.array([0, 64, 128, 192]))]
    assert distinct_lines(boxes, 2, 512) == 16
    assert distinct_lines([(box(16, 64, 4096), np.array([0]))], 2, 512) == 16


def test_a_tile_read_again_in_every_turn_counts_once() -> None:
    once = distinct_lines([(box(128, 256, 6144), np.array([0]))], 2, 512)
    assert once == 128  # 256 fp16 are one line
    assert distinct_lines([(box(128, 256, 6144), np.zeros(12, np.int64))], 2, 512) == once


def test_rows_without_gaps_are_one_span() -> None:
    # 16 rows of 32 bf16 without gaps are 1024 B from 256 B on: three lines
    assert distinct_lines([(box(16, 32, 32), np.array([128]))], 2, 512) == 3


def test_two_boxes_that_overlap_are_counted_together() -> None:
    boxes = [(box(4, 256, 1024), np.array([0])), (box(4, 256, 1024), np.array([1024]))]
    assert distinct_lines(boxes, 2, 512) == 5
