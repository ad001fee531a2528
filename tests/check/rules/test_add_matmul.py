"""Sums of products outside the accumulator: told where `matmul_acc` fits, and only there."""

from __future__ import annotations

from typing import Any

from linted import found, line_of, model, only, program

import npuscope.tile as pl
from npuscope.check.rule import Waste

STEPS, K, N = 4, 64, 128
TILE = 16 * N * 4  # bytes of one product


A: Any = pl.Tensor[[16, STEPS * K], pl.BF16]
B: Any = pl.Tensor[[STEPS * K, N], pl.BF16]
C: Any = pl.Out[pl.Tensor[[16, N], pl.FP32]]


@pl.jit
def on_the_vector_core(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="summed"):
        acc = pl.full([16, N], dtype=pl.FP32, value=0.0)
        for k in pl.pipeline(0, STEPS * K, K, stage=2):
            acc = pl.add(acc, pl.matmul(a[:, k : k + K], b[k : k + K, :]))  # on the vector core
        c[:, :] = acc
    return c


@pl.jit
def in_the_accumulator(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="summed"):
        acc = pl.matmul(a[:, 0:K], b[0:K, :])
        for k in pl.pipeline(K, STEPS * K, K, stage=2):
            acc = pl.matmul_acc(acc, a[:, k : k + K], b[k : k + K, :])
        c[:, :] = pl.add(acc, c[:, :])  # a residual, added once
    return c


@pl.jit
def rescaled(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="softmax"):
        acc = pl.full([16, N], dtype=pl.FP32, value=0.0)
        for k in pl.pipeline(0, STEPS * K, K, stage=2):
            product = pl.matmul(a[:, k : k + K], b[k : k + K, :])
            acc = pl.add(pl.mul(acc, 0.5), product)
        c[:, :] = acc
    return c


@pl.jit
def seen_elsewhere(a: A, b: B, c: C):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="squares"):
        acc = pl.full([16, N], dtype=pl.FP32, value=0.0)
        for k in pl.pipeline(0, STEPS * K, K, stage=2):
            product = pl.matmul(a[:, k : k + K], b[k : k + K, :])
            acc = pl.add(pl.add(acc, product), pl.mul(product, product))  # each product is needed by itself
        c[:, :] = acc
    return c


@pl.jit
def in_global_memory(a: A, b: B, c: pl.InOut[pl.Tensor[[16, N], pl.FP32]]):
    for k in pl.range(0, STEPS * K, K):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="step"):
            so_far = c[:, :]
            c[:, :] = pl.add(so_far, pl.matmul(a[:, k : k + K], b[k : k + K, :]))  # in global memory
    return c


def test_a_product_added_on_a_vector_core_belongs_in_the_accumulator() -> None:
    finding = only("add-matmul", on_the_vector_core, "# on the vector core")
    assert (finding.severity, finding.kernel) == ("warning", "summed")
    # four products cross to the vector core, through GM: written and read; each is one add per element
    assert finding.waste == Waste(bytes=STEPS * 2 * TILE, flops=STEPS * 16 * N)
    assert finding.change == "acc = pl.matmul_acc(acc, a[:, k:k + K], b[k:k + K, :])"


def test_a_product_added_to_a_sum_in_global_memory_belongs_there_too() -> None:
    finding = only("add-matmul", in_global_memory, "# in global memory")
    assert finding.waste == Waste(bytes=STEPS * 2 * TILE, flops=STEPS * 16 * N)  # the sum's own way is gm-accumulate's
    assert "to c, loaded and stored again, on a vector core" in finding.message


def test_sums_that_the_accumulator_cannot_keep_are_left_alone() -> None:
    for entry in (in_the_accumulator, rescaled, seen_elsewhere):
        assert not found("add-matmul", entry)


def test_on_a_chip_with_a_ring_on_chip_the_crossing_costs_no_traffic() -> None:
    finding = only("add-matmul", program(on_the_vector_core, device="ascend950"))
    assert finding.waste.bytes == 0


def test_attention_cut_into_tasks_is_told_to_accumulate_after_fusing() -> None:
    findings = found("add-matmul", model("paged_attention"))
    source = model("paged_attention").recording.sites[0].file
    assert sorted(findings) == [line_of(source, "pl.matmul(q_l0"), line_of(source, "pl.matmul(p_l0")]
    assert {finding.severity for finding in findings.values()} == {"hint"}
