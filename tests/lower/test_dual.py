"""Two products of one activation: what the fourth seed asked for, as a lowering."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.check.rules.memory import buffer_overflow
from npuscope.check.run import unfit
from npuscope.lower.lowering import LoweringOptions
from npuscope.lower.model import instructions
from npuscope.tile.run.execute import record
from tests.lower.kernels import lowered, tensor, used

M = 16
MAT = 524_288
NAIVE = LoweringOptions(stream=False)  # both weights loaded whole where the program slices them


def gate_up(k: int, n: int, dtype: Any, result: Any) -> Any:
    """One task: both products of K × N weights, both stored."""

    @pl.jit
    def dual(
        x: pl.Tensor[[M, k], dtype],
        w_gate: pl.Tensor[[k, n], dtype],
        w_up: pl.Tensor[[k, n], dtype],
        gate: pl.Out[pl.Tensor[[M, n], result]],
        up: pl.Out[pl.Tensor[[M, n], result]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="gate_up"):
            gate_acc, up_acc = pl.matmul_dual(x[:, 0:k], w_gate[0:k, 0:n], w_up[0:k, 0:n])
            gate = pl.assemble(gate, gate_acc, [0, 0])
            up = pl.assemble(up, up_acc, [0, 0])
        return gate, up

    return dual


def arguments(k: int, n: int, dtype: str, result: str) -> tuple[Any, ...]:
    weights = [tensor((k, n), dtype) for _ in range(2)]
    return tensor((M, k), dtype), *weights, tensor((M, n), result), tensor((M, n), result)


CASES = {
    # The seed's compile-only case, in the type of its weights and in BF16.
    "512 x 256 INT8": (512, 256, "INT8", "INT32"),
    "512 x 256 BF16": (512, 256, "BF16", "FP32"),
    # MLP_TN=512, and the whole K of the MLP in one call.
    "512 x 512 INT8": (512, 512, "INT8", "INT32"),
    "5120 x 256 INT8": (5120, 256, "INT8", "INT32"),
}


@pytest.mark.parametrize("case", CASES)
def test_both_products_fit_and_leave_their_accumulators_by_a_store(case: str) -> None:
    k, n, dtype, result = CASES[case]
    program, found = lowered(gate_up(k, n, getattr(pl, dtype), getattr(pl, result)), *arguments(k, n, dtype, result))
    assert unfit(program) == ()
    body = found[0].lowered
    stores = [one for one in instructions(body.items) if one.plane == "store"]
    assert [one.pipe for one in stores] == ["FIXP", "FIXP"]
    accumulators = {body.values[one.reads[0]].storage for one in stores}
    assert len(accumulators) == 2  # two, both alive at once
    assert not [one for one in instructions(body.items) if one.plane == "move" and one.pipe == "FIXP"]
    loads_of_x = [
        one for one in instructions(body.items) if one.result is not None and body.values[one.result].name == "x"
    ]
    assert sum(one.plane == "load" for one in loads_of_x) == 1  # the activation is staged once


def test_whole_weights_do_not_fit_at_the_sizes_of_the_seed() -> None:
    naive = {}
    for case, (k, n, dtype, result) in CASES.items():
        fn = gate_up(k, n, getattr(pl, dtype), getattr(pl, result))
        program, found = lowered(fn, *arguments(k, n, dtype, result), options=NAIVE)
        naive[case] = used(found)["gate_up", "Mat"]
        fits = not list(buffer_overflow.check(program))
        assert fits == (naive[case] <= MAT)
    # Two weights and the activation: 2 K N b + 16 K b bytes.
    assert naive == {
        "512 x 256 INT8": 2 * 512 * 256 + 16 * 512,
        "512 x 256 BF16": 2 * (2 * 512 * 256 + 16 * 512),  # 540,672
        "512 x 512 INT8": 2 * 512 * 512 + 16 * 512,  # 532,480
        "5120 x 256 INT8": 2 * 5120 * 256 + 16 * 5120,
    }
    assert [size > MAT for size in naive.values()] == [False, True, True, True]


def test_weights_that_take_turns_share_one_buffer() -> None:
    k, n, dtype, result = CASES["512 x 512 INT8"]
    _, found = lowered(gate_up(k, n, pl.INT8, pl.INT32), *arguments(k, n, dtype, result))
    # One weight and the activation; accumulators of INT32 have their 16 rows padded to 32.
    assert used(found)["gate_up", "Mat"] == 512 * 512 + 16 * 512
    assert used(found)["gate_up", "Acc"] == 2 * 32 * 512 * 4 == 131_072


def test_the_two_products_are_the_two_products() -> None:
    k, n = 64, 32
    fn = gate_up(k, n, pl.FP32, pl.FP32)
    rng = np.random.default_rng(1)
    x, a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((M, k), (k, n), (k, n)))
    gate, up = np.zeros((M, n), np.float32), np.zeros((M, n), np.float32)
    record(fn, x, a, b, gate, up, mode="values")
    np.testing.assert_allclose(gate, x @ a, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(up, x @ b, rtol=1e-5, atol=1e-5)
