"""Zeros followed from where they are written to whoever meets them."""

from __future__ import annotations

from typing import Any

import pytest
from linted import found, line_of, model, program

import npuscope.tile as pl
from npuscope.check.rule import Waste

STEPS, K, N = 4, 64, 128
SHAPES = (("BF16", 16, STEPS * K), ("BF16", STEPS * K, N), ("FP32", 16, N))
TILE = 16 * N * 4


A: Any = pl.Tensor[[16, STEPS * K], pl.BF16]
B: Any = pl.Tensor[[STEPS * K, N], pl.BF16]
C: Any = pl.Out[pl.Tensor[[16, N], pl.FP32]]


@pl.jit
def overwritten(a: A, b: B, c: C):
    for n in pl.range(0, N, 64):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
            nothing = pl.full([16, 64], dtype=pl.FP32, value=0.0)  # overwritten
            c[:, n : n + 64] = nothing
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        c[:, :] = pl.matmul(a[:, 0:K], b[0:K, :])
    return c


@pl.jit
def half_overwritten(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        c[:, 0:64] = pl.matmul(a[:, 0:K], b[0:K, 0:64])
    return c


@pl.jit
def ones_overwritten(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="one"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=1.0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        c[:, :] = pl.add(c[:, :], pl.matmul(a[:, 0:K], b[0:K, :]))
    return c


@pl.jit
def summed_in_gm(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)  # summed in GM
    for k in pl.range(0, STEPS * K, K):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="step"):
            c[:, :] = pl.add(c[:, :], pl.matmul(a[:, k : k + K], b[k : k + K, :]))
    return c


@pl.jit
def split_k(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="seed"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)
    for block in pl.spmd(STEPS, name_hint="split"):
        part = pl.matmul(a[:, block * K : (block + 1) * K], b[block * K : (block + 1) * K, :])
        c = pl.assemble(c, part, [0, 0], atomic=pl.AtomicType.Add)
    return c


@pl.jit
def split_k_in_one_block(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="seed"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="steps"):
        for k in pl.range(0, STEPS * K, K):  # the same box every turn: stored once, added four times
            part = pl.matmul(a[:, k : k + K], b[k : k + K, :])
            c = pl.assemble(c, part, [0, 0], atomic=pl.AtomicType.Add)
    return c


@pl.jit
def one_add_each(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="seed"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)  # one add each
    for block in pl.spmd(2, name_hint="columns"):
        part = pl.matmul(a[:, 0:K], b[0:K, block * 64 : (block + 1) * 64])
        c = pl.assemble(c, part, [0, block * 64], atomic=pl.AtomicType.Add)
    return c


@pl.jit
def zeros_wanted(a: A, b: B, c: C):
    padded = pl.create_tensor([16, K], dtype=pl.BF16)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="pad"):
        padded[0:8, :] = a[0:8, 0:K]
        padded[8:16, :] = pl.cast(pl.full([8, K], dtype=pl.FP32, value=0.0), target_type=pl.BF16)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        c[:, :] = pl.matmul(padded, b[0:K, :])
    return c


@pl.jit
def seed_on_chip(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
        acc = pl.full([16, N], dtype=pl.FP32, value=0.0)  # seed on chip
        for k in pl.pipeline(0, STEPS * K, K, stage=2):
            acc = pl.matmul_acc(acc, a[:, k : k + K], b[k : k + K, :])
        c[:, :] = acc
    return c


@pytest.mark.parametrize(
    ("entry", "mark", "cost", "said"),
    [
        # two tasks do nothing but write the 8 KB
        (overwritten, "# overwritten", Waste(bytes=TILE, tasks=2), "2 tasks do nothing else"),
        # written, and read back once
        (summed_in_gm, "# summed in GM", Waste(bytes=2 * TILE, tasks=1), "add the first product"),
        (one_add_each, "# one add each", Waste(bytes=TILE, tasks=1), "one atomic add"),
        (seed_on_chip, "# seed on chip", Waste(bytes=TILE), "from zeros"),
    ],
)
def test_zeros_that_a_first_product_would_replace(entry: Any, mark: str, cost: Waste, said: str) -> None:
    (finding,) = found("zero-fill", program(entry, *SHAPES)).values()
    assert finding.line == line_of(__file__, mark)
    assert finding.waste == cost
    assert said in finding.message


@pytest.mark.parametrize(
    "entry", [half_overwritten, ones_overwritten, split_k, split_k_in_one_block, zeros_wanted], ids=lambda e: e.name
)
def test_zeros_that_somebody_needs(entry: Any) -> None:
    assert not found("zero-fill", program(entry, *SHAPES))


def test_the_seeds_of_split_k_projections_are_needed() -> None:
    assert not found("zero-fill", model("qwen3_14b/decode_layer", "--small"))


@pl.jit
def met_late(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="zero"):
        c[:, :] = pl.full([16, N], dtype=pl.FP32, value=0.0)  # met late
    for _ in pl.range(600):  # all of them on one half, far longer than one looks at first
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="half"):
            c[:, 0:64] = pl.matmul(a[:, 0:K], b[0:K, 0:64])
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="other"):
        c[:, 64:128] = pl.matmul(a[:, 0:K], b[0:K, 64:128])
    return c


def test_zeros_are_followed_until_the_last_of_them_is_met() -> None:
    (finding,) = found("zero-fill", program(met_late, *SHAPES)).values()
    assert finding.line == line_of(__file__, "# met late")
