"""Paged attention, four kernels per block and in one: right, and of the structure the reports describe."""

from __future__ import annotations

import pytest
from tile_programs import counts, load, recording

from npuscope.tile.golden import driven

FOUR = ("qk_matmul", "softmax_prepare", "pv_matmul", "online_update")


def test_four_kernels_per_row_query_tile_and_block() -> None:
    # contexts 300, 200, 100, 1 in pages of 128: 3 + 2 + 1 + 1 = 7 blocks; 20 heads are 2 tiles; 7 x 2 = 14 of each
    found = counts(recording(load("paged_attention").run(batch=4, heads=20, context=300)))
    assert found == {
        "init_inplace": (8, 8, "AIV"),  # 4 rows x 2 tiles
        "qk_matmul": (14, 14, "AIC"),
        "softmax_prepare": (14, 14, "AIV"),
        "pv_matmul": (14, 14, "AIC"),
        "online_update": (14, 14, "AIV"),
    }


def test_the_size_of_the_reports_has_6144_tasks() -> None:
    with driven(shapes=True):
        found = counts(recording(load("paged_attention").run(batch=16, heads=40, context=4096, even=True)))
    # 16 rows x 3 tiles of 16 heads (40) x 32 pages of 128 (4096)
    assert [found[kernel][0] for kernel in FOUR] == [1536] * 4
    assert sum(found[kernel][0] for kernel in FOUR) == 6144
    assert found["init_inplace"][0] == 48


@pytest.mark.parametrize(
    ("case", "varied", "blocks"),
    [
        ("b2_h10_kv2_s384_bs128_fp16", False, 4),  # an item per block; 3 pages: a step of two and one of one
        ("b5_h40_kv8_s300_bs64_bf16", True, 24),  # 40 items on 24 blocks; contexts 300, 225, 150, 75, 1
        ("b1_h16_kv1_s130_bs128_fp16", False, 1),  # a full group of 16; the last page holds 2 tokens
    ],
)
def test_one_mixed_task_takes_the_rows_and_kv_heads_in_turn(case: str, varied: bool, blocks: int) -> None:
    found = counts(recording(load("paged_attention_highperf").run(case, varied)))
    assert found == {"paged_attention": (1, blocks, "MIX")}


def test_the_case_of_the_reports_fills_24_blocks() -> None:
    with driven(shapes=True):
        recorded = recording(load("paged_attention_highperf").run("b16_h40_kv8_s4096_bs128_fp16"))
    assert counts(recorded) == {"paged_attention": (1, 24, "MIX")}


@pytest.mark.parametrize("name", ["b2_h10", "b2_h10_kv4_s384_bs128_fp16", "b2_h10_kv2_s384_bs100_fp16"])
def test_a_name_that_is_no_case_says_so(name: str) -> None:
    with pytest.raises(SystemExit, match=name):
        load("paged_attention_highperf").run(name)
