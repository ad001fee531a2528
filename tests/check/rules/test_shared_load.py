"""Memory loaded more often than need be, and twins that load it once or cannot share it."""

from __future__ import annotations

from typing import Any

import pytest
from linted import found, line_of, model, only

import npuscope.tile as pl
from npuscope.check.rule import Waste

K, N, STEP = 256, 512, 64
ACTIVATION = 16 * K * 2


X: Any = pl.Tensor[[16, K], pl.BF16]
WK: Any = pl.Tensor[[K, N], pl.BF16]
KV: Any = pl.Out[pl.Tensor[[16, N], pl.FP32]]


@pl.jit
def apart(x: X, wk: WK, wv: WK, k: KV, v: KV):
    for n in pl.parallel(0, N, 256):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="k_proj"):
            k[:, n : n + 256] = pl.matmul(x[:, :], wk[:, n : n + 256], out_dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="v_proj"):  # apart
            v[:, n : n + 256] = pl.matmul(x[:, :], wv[:, n : n + 256], out_dtype=pl.FP32)
    return k, v


@pl.jit
def neighbouring_loops(x: X, wk: WK, wv: WK, k: KV, v: KV):
    for n in pl.parallel(0, N, 256):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="k_proj"):
            k[:, n : n + 256] = pl.matmul(x[:, :], wk[:, n : n + 256], out_dtype=pl.FP32)
    for n in pl.parallel(0, N, 256):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="v_proj"):  # neighbouring loops
            v[:, n : n + 256] = pl.matmul(x[:, :], wv[:, n : n + 256], out_dtype=pl.FP32)
    return k, v


@pl.jit
def together(x: X, wk: WK, wv: WK, k: KV, v: KV):
    for b in pl.spmd(N // 256, name_hint="kv_proj"):
        n = b * 256
        x_tile = x[:, :]
        k[:, n : n + 256] = pl.matmul(x_tile, wk[:, n : n + 256], out_dtype=pl.FP32)
        v[:, n : n + 256] = pl.matmul(x_tile, wv[:, n : n + 256], out_dtype=pl.FP32)
    return k, v


@pl.jit
def waiting(x: X, wk: WK, wv: WK, k: KV, v: KV):
    """Both load x, but the second needs all of what the first made, through a third."""
    sums = pl.create_tensor([16, 1], dtype=pl.FP32)
    for n in pl.parallel(0, N, 256):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="k_proj"):
            k[:, n : n + 256] = pl.matmul(x[:, :], wk[:, n : n + 256], out_dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="sum"):
        sums[:, :] = pl.row_sum(k[:, :])
    for n in pl.parallel(0, N, 256):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="v_proj"):
            product = pl.matmul(x[:, :], wv[:, n : n + 256], out_dtype=pl.FP32)
            v[:, n : n + 256] = pl.row_expand_mul(product, sums[:, :])
    return k, v


@pl.jit
def one_after_the_other(x: X, wk: WK, wv: WK, k: KV, v: KV):
    sums = pl.create_tensor([16, 1], dtype=pl.FP32)
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="sum"):
        sums[:, :] = pl.row_sum(pl.cast(x[:, :], target_type=pl.FP32))
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="scale"):  # one after the other
        k[:, 0:K] = pl.row_expand_mul(pl.cast(x[:, :], target_type=pl.FP32), sums[:, :])
    return k, v


@pl.jit
def every_turn(x: X, wk: WK, wv: WK, k: KV, v: KV):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="scale"):
        for n in pl.range(0, 256, STEP):
            gamma = pl.cast(wv[0:16, 0:STEP], target_type=pl.FP32)  # every turn
            k[:, n : n + STEP] = pl.mul(pl.cast(x[:, n : n + STEP], target_type=pl.FP32), gamma)
    return k, v


@pl.jit
def once(x: X, wk: WK, wv: WK, k: KV, v: KV):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="scale"):
        gamma = pl.cast(wv[0:16, 0:STEP], target_type=pl.FP32)
        for n in pl.range(0, 256, STEP):
            k[:, n : n + STEP] = pl.mul(pl.cast(x[:, n : n + STEP], target_type=pl.FP32), gamma)
    return k, v


@pl.jit
def narrow(x: X, wk: WK, wv: WK, k: KV, v: KV):
    for b in pl.spmd(N // STEP, name_hint="k_proj"):
        n = b * STEP
        tile = x[:, :]  # narrow
        k[:, n : n + STEP] = pl.matmul(tile, wk[:, n : n + STEP], out_dtype=pl.FP32)
    return k, v


@pytest.mark.parametrize(
    ("entry", "mark", "cost", "said"),
    [
        (apart, "# apart", 2 * ACTIVATION, "k_proj (line"),  # two tiles of 256 columns
        (neighbouring_loops, "# neighbouring loops", 2 * ACTIVATION, "load the same tiles of x"),
        (one_after_the_other, "# one after the other", ACTIVATION, "again that sum"),
        (every_turn, "# every turn", 3 * 16 * STEP * 2, "in each of 4 turns"),  # needed once of four times
        (narrow, "# narrow", 7 * ACTIVATION, "loaded 8 times, once for every 128 bytes of the rows of wk"),
    ],
)
def test_loaded_again(entry: Any, mark: str, cost: int, said: str) -> None:
    finding = only("shared-load", entry, mark)
    assert finding.waste == Waste(bytes=cost)
    assert said in finding.message


@pytest.mark.parametrize("entry", [together, waiting, once])
def test_loaded_once_or_not_to_be_shared(entry: Any) -> None:
    assert not found("shared-load", entry)


def test_the_tilelet_as_found_loads_normed_for_k_and_again_for_v() -> None:
    findings = found("shared-load", model("qwen3_32b_tilelet", "--as-found"))
    as_found = str(next(iter(findings.values())).file)
    shared = findings[line_of(as_found, "v_acc = pl.matmul(") - 1]
    assert shared.also == ((as_found, line_of(as_found, "k_acc = pl.matmul(") - 1),)
    assert shared.waste == Waste(bytes=256 // 64 * 16 * 2048 * 2)  # 4 tiles of 64 columns, each all of normed
    # gate and up share a load in each task, but every 64 columns of both load post_normed again
    gate_up = findings[line_of(as_found, "x_tile = pl.slice(post_normed")]
    assert gate_up.waste == Waste(bytes=(512 // 64 - 1) * 16 * 2048 * 2)
    assert "w_gate and w_up" in gate_up.message
