"""Paged attention, four kernels per block and in one: right, and of the structure the reports describe."""

from __future__ import annotations

import pytest
from tile_programs import counts, load, recording

from npuscope.tile.golden import driven
from npuscope.tile.graph import task_graph
from npuscope.tile.record.summary import summarise

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


def test_each_kernel_moves_the_tiles_of_its_hand_over() -> None:
    recorded = recording(load("paged_attention").run(batch=1, heads=16, context=256))  # two full pages
    moved = {k.kernel: (k.gm_read // k.tasks, k.gm_written // k.tasks) for k in summarise([recorded]).kernels}
    tile, column, page = 16 * 128, 16 * 4, 128 * 128 * 2
    assert moved == {
        "init_inplace": (0, 2 * column + tile * 4),
        "qk_matmul": (tile * 2 + page, tile * 4),  # 36 KB in, 8 KB out
        "softmax_prepare": (tile * 4, tile * 2 + 2 * column),  # 8 KB in, 4.1 KB out
        "pv_matmul": (tile * 2 + page, tile * 4),
        "online_update": (4 * column + 2 * tile * 4, 2 * column + 2 * tile * 4),  # 16 KB each way
    }


def test_a_block_waits_for_its_own_chain_and_for_the_update_before() -> None:
    recorded = recording(load("paged_attention").run(batch=2, heads=32, context=300))
    wanted = set()
    for task in recorded.tasks:
        if task.kernel == "init_inplace":
            state = task.id
        elif task.kernel == "online_update":  # submitted as QK, softmax, PV, update
            qk, softmax, pv, update = range(task.id - 3, task.id + 1)
            wanted |= {(qk, softmax), (softmax, pv), (softmax, update), (pv, update), (state, update)}
            state = update
    assert {pair for pair in task_graph(recorded).pairs if pair[0] >= 0} == wanted


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


def test_the_case_of_the_reports_fills_24_blocks_and_reads_the_cache_once() -> None:
    with driven(shapes=True):
        recorded = recording(load("paged_attention_highperf").run("b16_h40_kv8_s4096_bs128_fp16"))
    assert counts(recorded) == {"paged_attention": (1, 24, "MIX")}
    (kernel,) = summarise([recorded]).kernels
    # 128 items x 32 pages, K and V of 32 KB each; Q once; 4-byte lengths and two table entries per step of two pages
    assert kernel.gm_read == 4096 * 2 * 32_768 + 640 * 128 * 2 + 128 * 4 + 128 * 16 * 2 * 4
    assert kernel.gm_written == 640 * 128 * 2


@pytest.mark.parametrize(
    "name", ["b2_h10", "b2_h10_kv4_s384_bs128_fp16", "b2_h10_kv2_s384_bs100_fp16", "b2_h10_kv0_s384_bs128_fp16"]
)
def test_a_name_that_is_no_case_says_so(name: str) -> None:
    with pytest.raises(SystemExit, match=name):
        load("paged_attention_highperf").run(name)
