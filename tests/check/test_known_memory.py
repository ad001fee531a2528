"""Sizes that are known from the compiler's own plans (facts: qwen3_decode.md §3 and §4, chip.md §7), byte for byte.

For a K loop in a region: Mat = stages · (weights beside each other) · TK · TN · bytes + stages · M · TK · bytes + the
ring; Acc of FP32 [16, N] = 64 N, of INT32 [16, N] = 128 N (rows padded to 32). M is 16.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import npuscope.tile as pl
from npuscope.check.rules.memory import buffer_overflow
from npuscope.chip.devices import load
from npuscope.lower.lowering import LoweringOptions
from npuscope.lower.program import Program
from npuscope.tile.script.run import run_script
from tests.lower.kernels import lowered, tensor, used

MODELS = Path(__file__).resolve().parents[2] / "models" / "qwen3_14b"
KIB = 1024


@cache
def layer(file: str, *arguments: str) -> Program:
    (recording,) = run_script(MODELS / file, arguments, "shapes").recordings
    return Program(recording, load("910b1"))


def planned(program: Program) -> dict[tuple[str, str], int]:
    return used(tuple(program.planned.values()))


@pytest.mark.parametrize(
    ("kernel", "mat", "left", "right", "acc"),
    [
        # TK 256, TN 256, stage 2: 2·256·256·2 + 2·16·256·2. At the cube K is cut by 64: Right 64·256·2 in two halves,
        # Left 16·64·2 four times (two halves of two turns in flight; Right has no room for that).
        *((name, 278_528, 8_192, 65_536, 16_384) for name in ("q_proj", "k_proj", "v_proj")),
        # TK 64, TN 1024, stage 2: 2·64·1024·2 + 2·16·64·2. K is cut by 16: Right 16·1024·2 twice, Left 16·16·2 four
        # times.
        *((name, 266_240, 2_048, 65_536, 65_536) for name in ("gate_proj", "up_proj", "down_proj")),
        # TK 64, TN 512, stage 2: 2·64·512·2 + 2·16·64·2. K is cut by 32.
        ("out_proj", 135_168, 4_096, 65_536, 32_768),
    ],
)
def test_projections_of_the_bf16_layer(kernel: str, mat: int, left: int, right: int, acc: int) -> None:
    found = planned(layer("decode_layer.py"))
    assert [found[kernel, space] for space in ("Mat", "Left", "Right", "Acc")] == [mat, left, right, acc]


@pytest.mark.parametrize("kernel", ["silu", "dcr_xgamma", "rms_recip"])
def test_vector_kernels_of_the_bf16_layer_take_about_128_kib(kernel: str) -> None:
    # [16, 1024] of FP32 are 64 KiB: two at a time, or four of BF16. The source says "about".
    assert planned(layer("decode_layer.py"))[kernel, "Vec"] == pytest.approx(128 * KIB, rel=0.01)


def test_gate_and_up_in_one_task_of_the_a8w8_layer() -> None:
    found = planned(layer("decode_layer_a8w8.py", "--dual-gate-up-proj"))
    # TK 512, TN 256, INT8, not pipelined: the weights take turns in one buffer. 512·256 + 16·512.
    assert found["gate_up_dual_proj_aic", "Mat"] == 139_264
    assert found["gate_up_dual_proj_aic", "Acc"] == 2 * 128 * 256 == 65_536
    assert found["gate_up_dual_proj_aic", "Right"] == 65_536


def test_gate_and_up_in_one_task_with_tiles_of_512_columns() -> None:
    found = planned(layer("decode_layer_a8w8.py", "--dual-gate-up-proj", "--mlp-tn", "512"))
    assert found["gate_up_dual_proj_aic", "Mat"] == 512 * 512 + 16 * 512 == 270_336
    assert found["gate_up_dual_proj_aic", "Acc"] == 2 * 128 * 512 == 131_072  # all there is


M, K, TK, TN = 16, 5120, 512, 256


W_GATE: Any = pl.Tensor[[K, TN], pl.INT8]
GATE: Any = pl.Out[pl.Tensor[[M, TN], pl.INT32]]


@pl.jit
def pipelined_dual(x: pl.Tensor[[M, K], pl.INT8], w_gate: W_GATE, w_up: W_GATE, gate: GATE, up: GATE):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_up"):
        a = pl.matmul(x[:, 0:TK], w_gate[0:TK, :], out_dtype=pl.INT32)
        b = pl.matmul(x[:, 0:TK], w_up[0:TK, :], out_dtype=pl.INT32)
        for k in pl.pipeline(TK, K, TK, stage=2):
            part = x[:, k : k + TK]
            a = pl.matmul_acc(a, part, w_gate[k : k + TK, :])
            b = pl.matmul_acc(b, part, w_up[k : k + TK, :])
        gate = pl.assemble(gate, a, [0, 0])
        up = pl.assemble(up, b, [0, 0])
    return gate, up


def arguments() -> tuple[Any, ...]:
    weights = [tensor((K, TN), "INT8") for _ in range(2)]
    return tensor((M, K), "INT8"), *weights, tensor((M, TN), "INT32"), tensor((M, TN), "INT32")


def test_gate_and_up_in_one_task_do_not_fit_when_pipelined() -> None:
    program, found = lowered(pipelined_dual, *arguments())
    # Both turns in flight load both weights before either computes: 2·2·512·256 + 2·16·512.
    assert used(found)["gate_up", "Mat"] == 540_672
    (error,) = buffer_overflow.check(program)
    assert error.message.startswith("gate_up Mat buffer usage 540672 > 524288: w_gate [512, 256] INT8 131072 B")


def test_the_compile_failures_of_the_fourth_seed() -> None:
    # GIVEN gate and up as that issue found them, with MLP_TN=512 and the ring of that time: eight slots, four each way
    # where it goes both ways
    program = replace(layer("decode_layer_a8w8.py", "--mlp-tn", "512"), lowering=LoweringOptions(ring_slots=8))
    told = [error.message.partition(":")[0] for error in buffer_overflow.check(program)]
    # THEN 2 · 512·512 of weights, and four slots for the activation that the vector cores cast, each as large as the
    # largest tile that crosses: the sum [16, 512] of INT32
    assert 2 * 512 * 512 + 4 * 16 * 512 * 4 == 655_360
    assert told == ["gate_proj_aic Mat buffer usage 655360 > 524288", "up_proj_aic Mat buffer usage 655360 > 524288"]


def test_the_sizes_below_those_of_the_fourth_seed_compile() -> None:
    program = replace(layer("decode_layer_a8w8.py"), lowering=LoweringOptions(ring_slots=8))  # tiles of 256 columns
    assert list(buffer_overflow.check(program)) == []


SCALED: Any = pl.Out[pl.Tensor[[M, TN], pl.FP32]]


@pl.jit
def dual_scaled(
    x: pl.Tensor[[M, TK], pl.INT8],
    w: pl.Tensor[[TK, 2 * TN], pl.INT8],
    columns: pl.Tensor[[2, TN], pl.FP32],
    rows: pl.Tensor[[M, 1], pl.FP32],
    gate: SCALED,
    up: SCALED,
):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_up"):
        a = pl.matmul(x[:, :], w[:, 0:TN], out_dtype=pl.INT32)
        b = pl.matmul(x[:, :], w[:, TN : 2 * TN], out_dtype=pl.INT32)
        gate_columns = columns[0:1, :]
        up_columns = columns[1:2, :]
        scale = rows[:, :]
        gate_scaled = pl.row_expand_mul(pl.col_expand_mul(pl.cast(a, target_type=pl.FP32), gate_columns), scale)
        up_scaled = pl.row_expand_mul(pl.col_expand_mul(pl.cast(b, target_type=pl.FP32), up_columns), scale)
        gate = pl.assemble(gate, gate_scaled, [0, 0])
        up = pl.assemble(up, up_scaled, [0, 0])
    return gate, up


def test_scaling_two_results_before_either_is_stored_takes_65_kib_of_vec() -> None:
    # The source's kernel stores both at the end and is known to take 65.1 KiB: two slots and two results of [16, 256]
    # of four bytes, one row of scales (the other lies where the second result will be) and the column of scales.
    sizes = ((M, TK), "INT8"), ((TK, 2 * TN), "INT8"), ((2, TN), "FP32"), ((M, 1), "FP32"), *[((M, TN), "FP32")] * 2
    _, found = lowered(dual_scaled, *(tensor(*size) for size in sizes))
    assert used(found)["gate_up_aiv", "Vec"] == 4 * 16 * 256 * 4 + 256 * 4 + 16 * 4 == 66_624
    assert round(66_624 / KIB, 1) == 65.1
