"""What follows a product on its way out: folded into the store as the compiler of September does, or declined."""

from __future__ import annotations

from typing import Any

import pytest

import npuscope.tile as pl
from npuscope.check.run import check
from npuscope.ops.dtypes import BY_NAME
from npuscope.tile import Tensor as T
from npuscope.time.run import simulate
from tests.lower.kernels import lowered, program, tensor


def store_of(epilogue: Any, given: str, made: str, chip: str = "910b1", k: int = 64) -> Any:
    """A product, what is done to it, and its store."""
    dtype, out_dtype = getattr(pl, given), getattr(pl, made)

    @pl.jit
    def main(x: T[[64, k], dtype], w: T[[k, 64], dtype], out: pl.Out[T[[64, 64], out_dtype]]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
            out = pl.assemble(out, epilogue(pl.matmul(x, w)), [0, 0])
        return out

    return main, (tensor((64, k), given), tensor((k, 64), given), tensor((64, 64), made))


def rint(x: Any, dtype: str, **more: Any) -> Any:
    return pl.cast(x, BY_NAME[dtype], mode="rint", **more)


FOLDED = {
    "narrowed": (lambda acc: rint(acc, "BF16"), "BF16", "BF16", "910b1", (1.0, False)),
    "cut off, narrowed": (lambda acc: rint(pl.maximum(acc, 0), "BF16"), "BF16", "BF16", "910b1", (1.0, True)),
    "cut off, as it is": (lambda acc: pl.maximum(acc, 0.0), "BF16", "FP32", "910b1", (1.0, True)),
    "dequantised": (
        lambda acc: rint(pl.maximum(pl.mul(rint(acc, "FP32"), 0.5), 0.0), "FP16", saturation_mode="on"),
        "INT8", "FP16", "910b1", (0.5, True),
    ),
    "cut off before a negative scale": (
        lambda acc: rint(pl.mul(pl.maximum(acc, 0.0), -2.0), "BF16"), "BF16", "BF16", "950", (-2.0, True),
    ),
}  # fmt: skip
DECLINED = {
    "ties away from zero, as cast does it": (lambda acc: pl.cast(acc, pl.BF16), "BF16", "BF16", "910b1"),
    "FP16 that becomes infinite": (lambda acc: rint(acc, "FP16"), "BF16", "FP16", "910b1"),
    "no scale of this type on this chip": (lambda acc: rint(pl.mul(acc, 0.5), "BF16"), "BF16", "BF16", "910b1"),
    "cut off after a negative scale": (
        lambda acc: rint(pl.maximum(pl.mul(acc, -0.5), 0.0), "BF16"), "BF16", "BF16", "950",
    ),
    "used twice": (lambda acc: rint(pl.add(pl.maximum(acc, 0.0), acc), "BF16"), "BF16", "BF16", "910b1"),
    "multiplied as whole numbers": (
        lambda acc: rint(pl.mul(acc, 0.0), "FP32"), "INT8", "FP32", "910b1",
    ),
}  # fmt: skip


def units(found: Any) -> set[str]:
    (body,) = found
    return {one.unit for one in body.lowered.instructions}


@pytest.mark.parametrize("case", FOLDED)
def test_a_chain_that_the_way_out_computes_alike_needs_no_vector_core(case: str) -> None:
    epilogue, given, made, chip, (scale, relu) = FOLDED[case]
    main, arguments = store_of(epilogue, given, made)
    whole, found = lowered(main, *arguments, chip=chip)
    assert units(found) == {"AIC"}
    (out,) = [one for one in found[0].lowered.instructions if one.attribute("pre_quant") is not None]
    assert (out.attribute("pre_quant"), out.attribute("pre_relu")) == (scale, relu)
    # THEN the task takes no vector core, and neither a check nor the simulator objects
    assert [task.core for task in whole.recording.tasks] == ["AIC"]
    assert not check(whole).errors
    assert simulate(whole).wall > 0


@pytest.mark.parametrize("case", DECLINED)
def test_a_chain_with_other_numbers_stays_on_the_vector_cores(case: str) -> None:
    epilogue, given, made, chip = DECLINED[case]
    main, arguments = store_of(epilogue, given, made)
    whole, found = lowered(main, *arguments, chip=chip)
    assert units(found) == {"AIC", "AIV"}
    assert [task.core for task in whole.recording.tasks] == ["MIX"]


def test_a_scale_that_is_read_and_a_product_of_several_steps_are_not_folded() -> None:
    main, arguments = store_of(FOLDED["narrowed"][0], "BF16", "BF16", k=4096)
    assert units(lowered(main, *arguments)[1]) == {"AIC", "AIV"}

    @pl.jit
    def scaled(x: T[[64, 64], pl.BF16], by: T[[1, 8], pl.FP32], out: pl.Out[T[[64, 64], pl.BF16]]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
            out = pl.assemble(out, rint(pl.mul(pl.matmul(x, x), pl.read(by, [0, 0])), "BF16"), [0, 0])
        return out

    arguments = (tensor((64, 64), "BF16"), tensor((1, 8), "FP32"), tensor((64, 64), "BF16"))
    assert units(lowered(scaled, *arguments, chip="950")[1]) == {"AIC", "AIV"}


def test_an_epilogue_written_by_hand_passes_the_checks() -> None:
    """GIVEN a product narrowed by out_dtype= and one scaled by its store THEN neither is a move from Acc to Acc."""

    @pl.jit
    def main(
        x: T[[64, 64], pl.BF16], y: pl.Out[T[[64, 64], pl.BF16]], z: pl.Out[T[[64, 64], pl.INT8]]
    ):  # fmt: skip
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="narrow"):
            y = pl.assemble(y, pl.matmul(x, x, out_dtype=pl.BF16), [0, 0])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scaled"):
            z = pl.store(pl.matmul(x, x), [0, 0], z, pre_quant=0.5, pre_relu=True)
        return y

    whole = program(main)
    assert not check(whole).errors


def test_a_scale_to_a_type_that_the_chip_cannot_scale_to_is_refused() -> None:
    @pl.jit
    def main(x: T[[64, 64], pl.BF16], z: pl.Out[T[[64, 64], pl.BF16]]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scaled"):
            z = pl.store(pl.matmul(x, x), [0, 0], z, pre_quant=0.5)
        return z

    (error,) = check(program(main)).errors
    assert error.id == "store-type"
    assert "cannot scale it as BF16" in error.message
    assert not check(program(main, chip="950")).errors
