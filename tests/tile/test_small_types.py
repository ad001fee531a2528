"""Types of a byte and less, scales per group, and weights that lie in GM as boxes."""

# No `from __future__ import annotations`: signatures below name types that are local to a function.

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiers import examples

import npuscope.tile as pl
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.ops.dtypes import FP4, FP8E4M3FN, FP32, SMALL_FLOATS, unpacked
from npuscope.ops.rounding import cast
from npuscope.tile.fault import TileError
from npuscope.tile.record.summary import summarise
from npuscope.tile.record.walk import accesses_of
from npuscope.tile.run.execute import record
from tests.tile.one_task import CORE, RNG, floats, run_on

# --- types of half a byte

HALVES = {"FP4": ml_dtypes.float4_e2m1fn, "INT4": ml_dtypes.int4, "UINT4": ml_dtypes.uint4}


@pytest.mark.parametrize("name", HALVES)
def test_half_bytes_come_alone_or_two_to_a_byte(name: str) -> None:
    kind = getattr(pl, name)
    codes = RNG.integers(0, 16, (16, 32)).astype(np.uint8)
    alone = codes.view(HALVES[name]) if name == "FP4" else codes.astype(np.int8).astype(HALVES[name])
    two = codes[:, 0::2] | (codes[:, 1::2] << 4)

    @pl.jit
    def widened(x: pl.Tensor[[16, 32], kind], y: pl.Out[pl.Tensor[[16, 32], pl.FP32]]):
        with pl.at(level=CORE):
            y[:] = pl.cast(pl.cast(x, pl.FP16), pl.FP32)
        return y

    for held in (alone, two):
        y = np.zeros((16, 32), np.float32)
        widened(held, y)
        np.testing.assert_array_equal(y, alone.astype(np.float32))


def test_half_bytes_take_half_the_memory_and_move_half_the_bytes() -> None:
    def costs(kind: Any) -> tuple[int, int]:
        @pl.jit
        def widened(x: pl.Tensor[[16, 512], kind], y: pl.Out[pl.Tensor[[16, 512], pl.FP32]]):
            with pl.at(level=CORE):
                y[:] = pl.cast(pl.cast(x, pl.FP16), pl.FP32)
            return y

        recording = record(widened, np.zeros((16, 512), kind.storage), np.zeros((16, 512), np.float32)).recording
        (body,) = Program(recording, load("ascend950")).planned.values()
        (held,) = (value.bytes for value in body.lowered.values if value.dtype == kind.name)
        return held, summarise([recording]).kernels[0].gm_read

    assert costs(pl.INT8) == (16 * 512, 16 * 512)
    assert costs(pl.FP4) == costs(pl.INT4) == (16 * 256, 16 * 256)


@given(st.lists(st.floats(-8, 8, width=32) | st.floats(-500, 500, width=32), min_size=8, max_size=8))
@examples(60)
def test_every_small_float_rounds_as_ml_dtypes_does_and_comes_back(values: list[float]) -> None:
    tile = np.array([values], np.float32)
    for kind in SMALL_FLOATS:
        if kind.name == "FP8E8M0":
            continue  # powers of two only: a scale is made, not rounded to
        most = float(ml_dtypes.finfo(kind.storage).max)
        small = tile.clip(-most, most).astype(kind.storage)
        rounded = cast(tile, FP32, kind, "rint")
        np.testing.assert_array_equal(rounded, small.astype(np.float32))
        np.testing.assert_array_equal(rounded.astype(kind.storage).astype(np.float32), rounded)


# --- FP8 and scales per group


@given(st.lists(st.floats(-500, 500, width=32), min_size=8, max_size=8))
@examples(60)
def test_fp8_rounds_down_up_or_towards_zero_and_saturates(values: list[float]) -> None:
    tile = np.array([values], np.float32)
    for mode, low, high in (("floor", -np.inf, 0), ("ceil", 0, np.inf), ("trunc", -np.inf, 0)):
        rounded = cast(tile, FP32, FP8E4M3FN, mode)
        assert np.abs(rounded).max() <= 448
        moved = (np.abs(rounded) - np.abs(tile) if mode == "trunc" else rounded - tile)[np.abs(tile) <= 448]
        assert ((moved >= low) & (moved <= high)).all()


def mx_operands() -> tuple[list[np.ndarray], np.ndarray]:
    """Operands as a program gets them, scales packed, and their product from the definition."""
    m, k, n = 32, 128, 64
    a, b = (RNG.integers(-2, 3, shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((m, k), (k, n)))
    sa, sb = (RNG.integers(126, 130, shape).astype(np.uint8) for shape in ((m, k // 32), (k // 32, n)))
    packed_a = sa.reshape(m // 16, 16, k // 64, 2).transpose(0, 2, 1, 3).copy().reshape(sa.shape)
    packed_b = sb.reshape(k // 64, 2, n // 16, 16).transpose(2, 0, 3, 1).copy().reshape(sb.shape)
    group = np.arange(k) // 32
    left = a.astype(np.float64) * 2.0 ** (sa.astype(int) - 127)[:, group]
    right = b.astype(np.float64) * 2.0 ** (sb.astype(int) - 127)[group, :]
    scales = [x.view(ml_dtypes.float8_e8m0fnu) for x in (packed_a, packed_b)]
    return [a, scales[0], b, scales[1]], (left @ right).astype(np.float32)


@pytest.mark.parametrize("form", ["matmul_mx", "matmul_mx_acc", "matmul_mx_bias"])
def test_products_with_scales_are_their_definition(form: str) -> None:
    operands, product = mx_operands()

    def body(a: Any, sa: Any, b: Any, sb: Any) -> Any:
        tiles = [
            pl.load(a, [0, 0], [32, 128], target_memory=pl.Mem.Mat),
            pl.move(pl.load(sa, [0, 0], [32, 4], target_memory=pl.Mem.Mat), target_memory=pl.Mem.LeftScale),
            pl.load(b, [0, 0], [128, 64], target_memory=pl.Mem.Mat),
            pl.move(pl.load(sb, [0, 0], [4, 64], target_memory=pl.Mem.Mat), target_memory=pl.Mem.RightScale),
        ]
        if form == "matmul_mx_bias":
            return pl.matmul_mx_bias(*tiles, pl.full([1, 64], pl.FP32, 3.0))
        first = pl.matmul_mx(*tiles)
        return first if form == "matmul_mx" else pl.matmul_mx_acc(first, *tiles)

    got, _ = run_on(body, operands, (32, 64), x1=pl.MX_A_ZZ, x3=pl.MX_B_NN)
    factor, plus = {"matmul_mx": (1, 0), "matmul_mx_acc": (2, 0), "matmul_mx_bias": (1, 3)}[form]
    np.testing.assert_array_equal(got, product * factor + plus)


def test_the_exponents_of_groups_are_those_that_reach_the_largest_value() -> None:
    x = floats(32, 64) * np.float32(100)

    def body(a: Any) -> Any:
        values, scales = pl.quant_mx(pl.load(a, [0, 0], [32, 64]), group_axis=1)
        assert values.shape == (32, 64)
        assert scales.shape == (32, 2)
        return pl.cast(values, pl.FP32, mode="rint")

    got, _ = run_on(body, [x], (32, 64))
    exponent = np.floor(np.log2(np.abs(x).reshape(32, 2, 32).max(axis=-1))) - 8
    scaled = (x.reshape(32, 2, 32) / np.exp2(exponent)[..., None]).reshape(32, 64).astype(np.float32)
    want = scaled.clip(-448, 448).astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
    np.testing.assert_array_equal(got, want)


# --- weights in boxes


def in_boxes(x: np.ndarray) -> np.ndarray:
    """A matrix in the order of NZ: column blocks of 32 bytes, each row by row."""
    rows, columns = x.shape
    wide = 32 // x.dtype.itemsize
    return x.reshape(rows, columns // wide, wide).transpose(1, 0, 2).copy().reshape(x.shape)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.int8])
def test_weights_in_boxes_give_what_weights_in_rows_give(dtype: Any) -> None:
    x, w = (RNG.integers(-4, 5, shape).astype(dtype) for shape in ((16, 64), (64, 128)))
    out = np.int32 if dtype is np.int8 else np.float32
    rows, plain = run_on(lambda a, b: pl.matmul(a[:, :], b[:, 64:128]), [x, w], (16, 64), out)
    boxes, nz = run_on(lambda a, b: pl.matmul(a[:, :], b[:, 64:128]), [x, in_boxes(w)], (16, 64), out, x1=pl.NZ)
    np.testing.assert_array_equal(boxes, rows)
    # Half of the columns are one run of memory, where rows of the plain form are 64 elements long.
    shapes = {
        kind: [access.shape for _, access, _ in accesses_of(recording.bodies[0]) if access.shape != (16, 64)]
        for kind, recording in (("plain", plain), ("nz", nz))
    }
    assert shapes == {"plain": [(64, 64)], "nz": [(1, 64 * 64)]}


@pytest.mark.parametrize(
    "body", [
        lambda a, b: pl.matmul(a[:, :], b[:, 8:72]),
        lambda a, b: pl.load(b, [0, 0], [16, 128], target_memory=pl.Mem.Vec),
        lambda a, b: pl.load(pl.reshape(b, [128, 64]), [0, 0], [16, 64]),
    ], ids=["in the middle of a box", "into Vec", "reshaped"],
)  # fmt: skip
def test_what_boxes_cannot_give_is_refused(body: Any) -> None:
    x, w = (RNG.integers(-4, 5, shape).astype(ml_dtypes.bfloat16) for shape in ((16, 64), (64, 128)))
    with pytest.raises(TileError, match="boxes"):
        run_on(body, [x, w], (16, 128), x1=pl.NZ)


def test_boxes_too_far_apart_and_of_unknown_number_are_refused() -> None:
    x, tall = RNG.integers(-4, 5, (16, 32)).astype(np.int8), np.zeros((65_536 + 64, 64), np.int8)
    run_on(lambda a, b: pl.matmul(a, b[0:32, 0:32]), [x, tall], (16, 32), np.int32, x1=pl.NZ)
    with pytest.raises(TileError, match="65,568 rows between two columns of boxes"):
        run_on(lambda a, b: pl.matmul(a, b[0:32, :]), [x, tall], (16, 64), np.int32, x1=pl.NZ)
    rows = pl.dynamic("N")

    @pl.jit
    def product(
        a: pl.Tensor[[16, 32], pl.INT8],
        b: pl.Tensor[[rows, 64], pl.INT8, pl.NZ],
        y: pl.Out[pl.Tensor[[16, 64], pl.INT32]],
    ):
        with pl.at(level=pl.Level.CORE_GROUP):
            y = pl.store(pl.matmul(a, b[0:32, :]), [0, 0], y)
        return y

    with pytest.raises(TileError, match="known at run time only"):
        product(x, tall[:64], np.zeros((16, 64), np.int32))


def test_an_annotation_says_that_a_tensor_lies_in_boxes() -> None:
    """Of a local name, of a helper's parameter, and of `pl.tensor.view`."""
    scales = RNG.integers(120, 130, (4, 32)).astype(np.uint8)
    nn = scales.reshape(2, 2, 2, 16).transpose(2, 0, 3, 1).reshape(4, 32)
    a, b = (RNG.integers(-3, 4, shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((16, 128), (128, 32)))
    ones = np.full((16, 4), 127, np.uint8)

    @pl.jit.inline
    def product(x: pl.Tensor, sx: pl.Tensor, y: pl.Tensor, sy: pl.Tensor[[4, 32], pl.FP8E8M0, pl.MX_B_NN]):
        return pl.matmul_mx(
            pl.load(x, [0, 0], [16, 128]), pl.load(sx, [0, 0], [16, 4]), pl.load(y, [0, 0], [128, 32]),
            pl.load(sy, [0, 0], [4, 32]),
        )  # fmt: skip

    @pl.jit
    def program(
        x: pl.Tensor[[16, 128], pl.FP8E4M3FN], sx: pl.Tensor[[16, 4], pl.FP8E8M0],
        y: pl.Tensor[[128, 32], pl.FP8E4M3FN], sy: pl.Tensor[[4, 32], pl.FP8E8M0],
        out: pl.Out[pl.Tensor[[48, 32], pl.FP32]],
    ):  # fmt: skip
        local: pl.Tensor[[4, 32], pl.FP8E8M0, pl.MX_B_NN] = sy
        with pl.at(level=CORE):
            pl.store(product(x, sx, y, local), [0, 0], out)
        with pl.at(level=CORE):
            pl.store(product(x, sx, y, sy), [16, 0], out)
        with pl.at(level=CORE):
            seen = pl.tensor.view(pl.reshape(sy, [1, 128]), [4, 32], layout=pl.MX_B_NN)
            pl.store(product(x, sx, y, seen), [32, 0], out)
        return out

    out = np.zeros((48, 32), np.float32)
    program(a, ones, b, nn, out)
    factors = np.exp2(np.repeat(scales.astype(np.float32) - 127, 32, axis=0))
    wanted = a.astype(np.float32) @ (b.astype(np.float32) * factors)
    np.testing.assert_allclose(out, np.tile(wanted, (3, 1)), rtol=1e-5)


@given(st.integers(0, 2**31 - 1))
@examples(20)
def test_scales_that_pass_through_memory_are_those_that_were_made(seed: int) -> None:
    """quant_mx, and the same by hand with tmov_x2zz: flat in GM they lie in the cube's order, and come back from it."""
    x = np.exp2(np.random.default_rng(seed).integers(-9, 9, (32, 128))).astype(np.float32)

    @pl.jit
    def program(
        x: pl.Tensor[[32, 128], pl.FP32], flat: pl.InOut[pl.Tensor[[2, 128], pl.FP8E8M0]],
        out: pl.Out[pl.Tensor[[64, 32], pl.FP32]],
    ):  # fmt: skip
        with pl.at(level=CORE):
            _values, scales = pl.quant_mx(pl.load(x, [0, 0], [32, 128]), group_axis=1)
            pl.store(pl.reshape(scales, [1, 128]), [0, 0], flat)
            codes = pl.reshape(pl.reinterpret_view(scales, pl.UINT8), [32, 4])
            moved = pl.tmov_x2zz(codes, pl.create_tile([1, 96], dtype=pl.UINT8), group_axis=1, dst_rows=32, dst_cols=4)
            pl.store(pl.reshape(pl.reinterpret_view(moved, pl.FP8E8M0), [1, 128]), [1, 0], flat)
        for row in pl.range(2):
            view = pl.tensor.view(flat[row : row + 1, :], [32, 4], layout=pl.MX_A_ZZ)
            with pl.at(level=CORE):
                ones = pl.full([32, 128], pl.FP8E4M3FN, 1.0)
                picks = pl.full([128, 32], pl.FP8E4M3FN, 1.0)
                even = pl.full([4, 32], pl.FP8E8M0, 1.0)
                pl.store(pl.matmul_mx(ones, pl.load(view, [0, 0], [32, 4]), picks, even), [32 * row, 0], out)
        return out

    flat, out = np.full((2, 128), 127, np.uint8), np.zeros((64, 32), np.float32)
    program(x, flat, out)
    largest = np.abs(x).reshape(32, 4, 32).max(axis=2)
    scales = np.exp2(np.floor(np.log2(largest)) - 8)
    np.testing.assert_array_equal(flat[0], flat[1])
    np.testing.assert_allclose(out, np.tile(32 * scales.sum(axis=1)[:, None], (2, 32)), rtol=1e-6)


@given(st.integers(0, 2**31 - 1))
@examples(20)
def test_two_fp4_of_a_byte_become_a_row_twice_as_long(seed: int) -> None:
    packed_ = np.random.default_rng(seed).integers(0, 256, (16, 32)).astype(np.uint8)

    @pl.jit
    def program(
        x: pl.Tensor[[16, 32], pl.FP4E2M1X2], wide: pl.Out[pl.Tensor[[16, 64], pl.BF16]],
        back: pl.Out[pl.Tensor[[16, 32], pl.FP4E2M1X2]], bits: pl.Out[pl.Tensor[[16, 32], pl.UINT8]],
    ):  # fmt: skip
        with pl.at(level=CORE):
            tile = pl.load(x, [0, 0], [16, 32])
            values = pl.cast(tile, pl.BF16)
            pl.store(values, [0, 0], wide)
            pl.store(pl.cast(values, pl.FP4E2M1X2), [0, 0], back)
            pl.store(pl.reinterpret_view(tile, pl.UINT8), [0, 0], bits)
        return wide

    wide, back, bits = (
        np.zeros((16, 64), ml_dtypes.bfloat16),
        np.zeros((16, 32), np.uint8),
        np.zeros((16, 32), np.uint8),
    )
    program(packed_, wide, back, bits)
    np.testing.assert_array_equal(wide.astype(np.float32), unpacked(packed_, FP4).astype(np.float32))
    np.testing.assert_array_equal(unpacked(back, FP4).astype(np.float32), wide.astype(np.float32))
    np.testing.assert_array_equal(bits, packed_)
