"""Tensors between tasks that could be one: found with their bytes, and not where somebody else needs them."""

from __future__ import annotations

from typing import Any

import pytest
from linted import found, line_of, model, only

import npuscope.tile as pl
from npuscope.check.rule import Waste

ROUND_TRIP, HALVES = "gm-round-trip", "split-halves"
ROWS, N = 4, 128
TILE = 16 * N * 4


X: Any = pl.Tensor[[ROWS * 16, N], pl.BF16]
W: Any = pl.Tensor[[N, N], pl.BF16]
Y: Any = pl.Out[pl.Tensor[[ROWS * 16, N], pl.FP32]]


@pl.jit
def halves(x: X, w: W, y: Y):
    for r in pl.parallel(0, ROWS * 16, 16):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):  # halves
            part = pl.matmul(x[r : r + 16, :], w[:, :], out_dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
            y[r : r + 16, :] = pl.exp(part)
    return y


@pl.jit
def three_tasks(x: X, w: W, y: Y):
    scores = pl.create_tensor([ROWS * 16, N], dtype=pl.FP32)
    weights = pl.create_tensor([ROWS * 16, N], dtype=pl.BF16)
    for r in pl.parallel(0, ROWS * 16, 16):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):  # three tasks
            scores[r : r + 16, :] = pl.matmul(x[r : r + 16, :], w[:, :], out_dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="weigh"):
            weights[r : r + 16, :] = pl.cast(pl.exp(scores[r : r + 16, :]), target_type=pl.BF16)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="again"):
            y[r : r + 16, :] = pl.matmul(weights[r : r + 16, :], w[:, :], out_dtype=pl.FP32)
    return y


@pl.jit
def blocks(x: X, w: W, y: Y):
    wide = pl.create_tensor([ROWS * 16, N], dtype=pl.FP32)
    for b in pl.spmd(ROWS, name_hint="widen"):  # blocks
        wide[b * 16 : b * 16 + 16, :] = pl.cast(x[b * 16 : b * 16 + 16, :], target_type=pl.FP32)
    for b in pl.spmd(ROWS, name_hint="root"):
        y[b * 16 : b * 16 + 16, :] = pl.exp(wide[b * 16 : b * 16 + 16, :])
    return y


@pl.jit
def sometimes_two(x: X, w: W, y: Y):
    """In half of the turns what the first task makes is needed elsewhere."""
    kept = pl.create_tensor([16, N], dtype=pl.FP32)
    for r in pl.parallel(0, ROWS * 16, 16):
        scores = pl.create_tensor([16, N], dtype=pl.FP32)
        weights = pl.create_tensor([16, N], dtype=pl.BF16)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):  # sometimes two
            scores[:, :] = pl.matmul(x[r : r + 16, :], w[:, :], out_dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="weigh"):
            weights[:, :] = pl.cast(pl.exp(scores[:, :]), target_type=pl.BF16)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="again"):
            y[r : r + 16, :] = pl.matmul(weights[:, :], w[:, :], out_dtype=pl.FP32)
        for _ in pl.range(r // 32):  # none in the first two turns
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="keep"):
                kept[:, :] = scores[:, :]
    return y


@pl.jit
def fused(x: X, w: W, y: Y):
    for b in pl.spmd(ROWS, name_hint="all"):
        part = pl.matmul(x[b * 16 : b * 16 + 16, :], w[:, :], out_dtype=pl.FP32)
        y[b * 16 : b * 16 + 16, :] = pl.exp(part)
    return y


@pl.jit
def other_blocks(x: X, w: W, y: Y):
    """Every block reads what its neighbour wrote."""
    wide = pl.create_tensor([ROWS * 16, N], dtype=pl.FP32)
    for b in pl.spmd(ROWS, name_hint="widen"):
        wide[b * 16 : b * 16 + 16, :] = pl.cast(x[b * 16 : b * 16 + 16, :], target_type=pl.FP32)
    for b in pl.spmd(ROWS, name_hint="root"):
        c = (b + 1) % ROWS
        y[b * 16 : b * 16 + 16, :] = pl.exp(wide[c * 16 : c * 16 + 16, :])
    return y


@pl.jit
def read_elsewhere(x: X, w: W, y: Y):
    """What the first task of a turn writes, a task after the loop reads again."""
    kept = pl.create_tensor([ROWS * 16, N], dtype=pl.FP32)
    for r in pl.parallel(0, ROWS * 16, 16):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
            kept[r : r + 16, :] = pl.matmul(x[r : r + 16, :], w[:, :], out_dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
            y[r : r + 16, :] = pl.exp(kept[r : r + 16, :])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="again"):
        y[0:16, :] = kept[16:32, :]
    return y


@pl.jit
def something_between(x: X, w: W, y: Y):
    """The last task of a turn needs the first one's tile and what eight others, in a loop, made of it."""
    wide = pl.create_tensor([16, N], dtype=pl.FP32)
    sums = pl.create_tensor([16, N], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="widen"):
        wide[:, :] = pl.cast(x[0:16, :], target_type=pl.FP32)
    for c in pl.parallel(0, N, 16):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="sum"):
            sums[:, c : c + 16] = pl.exp(wide[:, c : c + 16])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="last"):
        y[0:16, :] = pl.add(wide[:, :], sums[:, :])
    return y


@pl.jit
def split_k(x: X, w: W, y: Y):
    """The reader needs the sum of all partial products: no one of their tasks has it."""
    total = pl.create_tensor([16, N], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="seed"):
        total[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)
    for k in pl.parallel(0, N, 64):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="part"):
            part = pl.matmul(x[0:16, k : k + 64], w[k : k + 64, :], out_dtype=pl.FP32)
            total = pl.assemble(total, part, [0, 0], atomic=pl.AtomicType.Add)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="root"):
        y[0:16, :] = pl.exp(total[:, :])
    return y


def test_cube_and_vector_half_of_one_product() -> None:
    assert not found(ROUND_TRIP, halves)  # told once
    finding = only(HALVES, halves, "# halves")
    assert finding.waste == Waste(bytes=ROWS * 2 * TILE, tasks=ROWS)  # each tile written and read once
    assert "part" in finding.message


def test_a_chain_is_told_once_with_all_its_tensors() -> None:
    assert not found(HALVES, three_tasks)
    finding = only(ROUND_TRIP, three_tasks, "# three tasks")
    # fp32 scores and bf16 weights, both ways
    assert finding.waste == Waste(bytes=ROWS * (2 * TILE + TILE), tasks=ROWS * 2)
    assert "scores and weights" in finding.message
    assert "ring in GM" in finding.message  # 910B: no on-chip way between cube and vector cores
    assert [line for _, line in finding.also] == [finding.line + 2, finding.line + 4]


def test_a_shorter_chain_of_the_same_tasks_counts_with_the_longer() -> None:
    assert not found(HALVES, sometimes_two)
    finding = only(ROUND_TRIP, sometimes_two)
    # fp32 scores and bf16 weights in two turns, the weights alone in the others; two tasks fewer, or one
    assert finding.waste == Waste(bytes=2 * 2 * TILE + 4 * 2 * TILE // 2, tasks=2 * 2 + 2 * 1)
    assert finding.line == line_of(__file__, "# sometimes two")


def test_blocks_that_go_on_with_their_own_tile() -> None:
    finding = only(ROUND_TRIP, blocks, "# blocks")
    assert finding.waste == Waste(bytes=ROWS * 2 * TILE, tasks=1)
    assert "ring" not in finding.message  # vector cores only


@pytest.mark.parametrize("entry", [fused, other_blocks, read_elsewhere, something_between, split_k])
def test_what_cannot_be_one_task_is_not_found(entry: Any) -> None:
    assert not found(ROUND_TRIP, entry)
    assert not found(HALVES, entry)


def test_the_attention_of_the_tilelet_as_found() -> None:
    """Seed: per (row, group, block) scores, exp and products are written 4 + 1 + 8 KB and read 2 + 2 + 4 KB."""
    found_in = found(ROUND_TRIP, model("qwen3_32b_tilelet", "--as-found", "--even"))
    chain, *crossings = found_in.values()
    items = 16 * 2 * 4  # rows, groups, blocks of 64 of 256 tokens
    later = 16 * 2 * 3  # after the first block, the maxima and sums of 8 rows are handed over too
    assert chain.waste == Waste(bytes=items * 21 * 1024 + later * 4 * 8 * 4, tasks=items * 3)
    assert chain.severity == "warning"
    for name in ("raw_scores", "exp_padded", "products"):
        assert name in chain.message
    # scope 1 to scope 2: q 16 x 2048 and k, v 16 x 256 in fp32, each way, as weaker hints
    assert [finding.message.split()[0] for finding in crossings] == ["q_proj", "k_proj", "v_proj"]
    assert [finding.waste.bytes for finding in crossings] == [2 * 16 * n * 4 for n in (2048, 256, 256)]
    assert {finding.severity for finding in crossings} == {"hint"}


def test_the_attention_at_the_size_of_the_issue_costs_176_mb() -> None:
    """The issue's 16 rows, 8 groups and 64 blocks: 8,192 items of 21 KB, from what one block more per item costs."""
    few, more = (
        next(iter(found(ROUND_TRIP, model("qwen3_32b_tilelet", "--as-found", "--even", "--context", n)).values()))
        for n in ("128", "256")
    )
    assert (few.count, more.count) == (16 * 2 * 2, 16 * 2 * 4)
    item = (more.waste.bytes - few.waste.bytes) // (more.count - few.count) - 4 * 8 * 4  # without maxima and sums
    assert item * 16 * 8 * 64 == 176_160_768
