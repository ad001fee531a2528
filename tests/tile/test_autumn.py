"""What programs of autumn 2026 have and those of summer had not: recorded graphs, ops by index, FP8 with scales per
group, weights that lie in GM as boxes, and golden.run with one configuration.
"""

# No `from __future__ import annotations`: signatures below name types that are local to a function.

import functools
from pathlib import Path
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
from npuscope.ops.shaping import philox
from npuscope.tile import golden
from npuscope.tile.fault import TileError
from npuscope.tile.golden import TensorSpec
from npuscope.tile.record.summary import summarise
from npuscope.tile.record.walk import accesses_of
from npuscope.tile.run.execute import record
from npuscope.tile.script.pytest_files import RunSettings
from npuscope.tile.script.run import run_script
from npuscope.time.run import simulate

CORE = pl.Level.CORE_GROUP
RNG = np.random.default_rng(7)


def run_on(body: Any, inputs: list[np.ndarray], shape: tuple[int, ...], dtype: Any = np.float32, **layouts: Any) -> Any:
    """A program of one task: what `body` makes of its inputs is stored; its output. `layouts`: of inputs by place."""
    types = [
        pl.Tensor[list(x.shape), _type(x), *([layouts[f"x{n}"]] if f"x{n}" in layouts else [])]
        for n, x in enumerate(inputs)
    ]
    a, b, c, d = (types * 4)[:4] if len(types) < 4 else types[:4]
    out_type = pl.Tensor[list(shape), _type(np.zeros(0, dtype))]

    @pl.jit
    def one(x0: a, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0), [0, 0], out)
        return out

    @pl.jit
    def two(x0: a, x1: b, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0, x1), [0, 0], out)
        return out

    @pl.jit
    def three(x0: a, x1: b, x2: c, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0, x1, x2), [0, 0], out)
        return out

    @pl.jit
    def four(x0: a, x1: b, x2: c, x3: d, out: pl.Out[out_type]):  # type: ignore[valid-type]
        with pl.at(level=CORE):
            out = pl.store(body(x0, x1, x2, x3), [0, 0], out)
        return out

    out = np.zeros(shape, dtype)
    finished = record([one, two, three, four][len(inputs) - 1], *inputs, out)
    return out, finished.recording


def _type(x: np.ndarray) -> Any:
    from npuscope.ops.dtypes import of_storage

    return of_storage(x.dtype)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


# --- gathers and scatters


@pytest.mark.parametrize("outside", ["undefined", "clamp", "wrap", "zero"])
def test_rows_are_gathered_by_an_index(outside: str) -> None:
    table, index = floats(20, 32), np.array([[19, 0, 3, 3, 25, -1, 7, 2]], np.int32)
    if outside == "undefined":
        index = index.clip(0, 19)
    got, _ = run_on(
        lambda mem, idx: pl.mgather(mem, pl.load(idx, [0, 0], [1, 8]), gather_oob=outside), [table, index], (8, 32)
    )
    unsigned = np.where(index[0] < 0, 19, index[0])  # the chip reads an index without its sign
    want = table[index[0] % 20 if outside == "wrap" else unsigned.clip(0, 19)]
    if outside == "zero":
        want[(index[0] < 0) | (index[0] > 19)] = 0
    np.testing.assert_array_equal(got, want)


def test_rows_and_columns_past_the_valid_shape_are_not_gathered() -> None:
    table, index = floats(20, 32), RNG.integers(0, 20, (1, 8)).astype(np.int32)
    got, _ = run_on(
        lambda mem, idx: pl.mgather(mem, pl.load(idx, [0, 0], [1, 8]), valid_shape=[5, 21]), [table, index], (8, 32)
    )
    want = np.zeros((8, 32), np.float32)
    want[:5, :21] = table[index[0, :5], :21]
    np.testing.assert_array_equal(got, want)
    with pytest.raises(TileError, match=r"valid_shape=\[9, 32\]"):
        run_on(lambda mem, idx: pl.mgather(mem, idx, valid_shape=[9, 32]), [table, index], (8, 32))


def test_what_an_index_names_outside_is_poison() -> None:
    got, _ = run_on(
        lambda mem, idx: pl.mgather(mem, pl.load(idx, [0, 0], [1, 8])), [floats(4, 32), np.full((1, 8), 9, np.int32)],
        (8, 32),
    )  # fmt: skip
    assert np.isnan(got).all()


def test_elements_are_gathered_and_scattered_by_an_index() -> None:
    flat, index = floats(4, 16), RNG.permutation(64).astype(np.int32).reshape(4, 16)
    got, _ = run_on(lambda mem, idx: pl.mgather(mem, pl.load(idx, [0, 0], [4, 16]), "elem"), [flat, index], (4, 16))
    np.testing.assert_array_equal(got, flat.reshape(-1)[index])

    @pl.jit
    def back(x: pl.Tensor[[4, 16], pl.FP32], idx: pl.Tensor[[4, 16], pl.INT32], y: pl.Out[pl.Tensor[[4, 16], pl.FP32]]):
        with pl.at(level=CORE):
            y = pl.mscatter(pl.load(x, [0, 0], [4, 16]), pl.load(idx, [0, 0], [4, 16]), y)
        return y

    y = np.zeros((4, 16), np.float32)
    back(got, index, y)
    np.testing.assert_array_equal(y, flat)


@pytest.mark.parametrize("across", [False, True])
def test_rows_of_a_paged_cache_are_gathered_through_its_table(across: bool) -> None:
    cache, table = floats(6 * 4, 64), np.array([5, 0, 3], np.int32)  # six pages of four rows
    index = np.array([0, 11, 4, 7], np.int32)
    shape = (32, 8) if across else (8, 32)
    got, _ = run_on(
        lambda src, idx, tab: pl.paged_gather(src, idx, tab, 4, 32, 8, space=pl.Mem.Vec, col_off=16, is_trans=across),
        [cache, index, table], shape,
    )  # fmt: skip
    want = cache[table[index // 4] * 4 + index % 4, 16:48]
    np.testing.assert_array_equal((got.T if across else got)[:4], want)


@pytest.mark.parametrize("on_chip", [False, True])
def test_rows_are_replaced_where_an_index_says(on_chip: bool) -> None:
    old, new = floats(12, 16), floats(6, 16)
    index = np.array([[11, 0, 5], [2, 3, 7]], np.int32)

    @pl.jit
    def update(
        x: pl.Tensor[[12, 16], pl.FP32],
        idx: pl.Tensor[[2, 3], pl.INT32],
        src: pl.Tensor[[6, 16], pl.FP32],
        y: pl.InOut[pl.Tensor[[12, 16], pl.FP32]],
    ):
        with pl.at(level=CORE):
            if on_chip:
                y = pl.store(pl.scatter_update(pl.load(x, [0, 0], [12, 16]), -2, idx, src), [0, 0], y)
            else:
                y = pl.scatter_update(y, index=idx, src=src)
        return y

    y = old.copy()
    update(old, index, new, y)
    want = old.copy()
    want[index.reshape(-1)] = new
    np.testing.assert_array_equal(y, want)


def test_blocks_of_32_bytes_are_gathered_by_byte_offsets() -> None:
    x, offsets = floats(8, 32), (RNG.integers(0, 32, (4, 8)) * 32).astype(np.uint32)
    got, _ = run_on(
        lambda a, o: pl.gatherb(pl.load(a, [0, 0], [8, 32]), pl.load(o, [0, 0], [4, 8])), [x, offsets], (4, 64)
    )
    want = [x.reshape(-1)[at // 4 : at // 4 + 8] for at in offsets.reshape(-1)]
    np.testing.assert_array_equal(got, np.stack(want).reshape(4, 64))


def test_three_terms_and_repeated_rows() -> None:
    x, y = floats(1, 32), floats(8, 32)
    got, _ = run_on(
        lambda a, b: pl.subc(
            pl.expand_clone(pl.load(a, [0, 0], [1, 32]), pl.load(b, [0, 0], [8, 32])), 1.0, pl.load(b, [0, 0], [8, 32])
        ),
        [x, y], (8, 32),
    )  # fmt: skip
    np.testing.assert_array_equal(got, np.repeat(x, 8, axis=0) - np.float32(1) + y)


@pytest.mark.parametrize("kept", ["tile", "number"])
def test_a_selection_without_scratch(kept: str) -> None:
    def body(a: Any) -> Any:
        tile = pl.load(a, [0, 0], [8, 32])
        positive = pl.cmps(tile, 0.0, cmp_type=4)
        return pl.tile.select(positive, tile, -1.0) if kept == "tile" else pl.tile.select(positive, -1.0, tile)

    x = floats(8, 32)
    got, _ = run_on(body, [x], (8, 32))
    np.testing.assert_array_equal(got, np.where(x > 0, x, -1) if kept == "tile" else np.where(x > 0, -1, x))


@pytest.mark.parametrize(
    ("op", "left", "right", "noticed"), [
        (pl.add, (8, 32), (1, 32), True), (pl.mul, (1, 32), (8, 32), True), (pl.sub, (8, 1), (8, 32), True),
        (pl.sub, (8, 32), (8, 1), False), (pl.mul, (8, 32), (8, 32), False), (pl.add, (1, 32), (1, 1), False),
    ],
)  # fmt: skip
def test_shapes_that_the_chip_does_not_spread_are_noticed(op: Any, left: Any, right: Any, noticed: bool) -> None:
    x, y = floats(*left), floats(*right)
    body = lambda a, b: op(pl.load(a, [0, 0], list(left)), pl.load(b, [0, 0], list(right)))  # noqa: E731
    _, recording = run_on(body, [x, y], np.broadcast_shapes(left, right))
    assert ("spread" in [notice.kind for notice in recording.notices]) is noticed


def test_random_words_are_philoxs() -> None:
    """The known answers of Random123, the generator's own library, for 4x32 in 10 rounds."""
    digits = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
    ones = (0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2
    answers = {
        ((0, 0, 0, 0), (0, 0)): [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8],
        ones: [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
        digits: [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    }
    for (counter, key), words in answers.items():
        assert philox(key, counter, 4, 10).tolist() == words
    x, _ = run_on(lambda a: pl.tile.random(1, 2, 3, 4, 5, 6, [4, 64], rounds=7), [floats(1, 8)], (4, 64), np.uint32)
    np.testing.assert_array_equal(x.reshape(-1), philox((1, 2), (3, 4, 5, 6), 256, 7))


def test_parts_keep_what_only_one_tile_has() -> None:
    x, y = floats(8, 16), floats(8, 16)
    for name, numeric in (("part_add", np.add), ("part_mul", np.multiply), ("part_max", np.maximum)):
        got, _ = run_on(
            lambda a, b, name=name: getattr(pl.tile, name)(
                src0=pl.load(a, [0, 0], [8, 16], valid_shape=[4, 8]), src1=pl.load(b, [0, 0], [8, 16])
            ),
            [x, y], (8, 16),
        )  # fmt: skip
        want = y.copy()
        want[:4, :8] = numeric(x[:4, :8], y[:4, :8])
        np.testing.assert_array_equal(got, want)


def test_a_product_into_a_part_of_an_accumulator_is_in_the_whole() -> None:
    a, b = floats(16, 32), floats(32, 64)

    def body(x: Any, w: Any) -> Any:
        whole = pl.create_tile([16, 64], pl.FP32, target_memory=pl.Mem.Acc)
        for t in pl.range(2):
            part = pl.tile.slice(whole, [16, 32], [0, 32 * t])
            for k in pl.range(0, 32, 16):
                left, right = pl.load(x, [0, k], [16, 16]), pl.load(w, [k, 32 * t], [16, 32])
                part = pl.matmul_acc(part, left, right, init_cond=(k == 0))
        return whole

    got, _ = run_on(body, [a, b], (16, 64))
    np.testing.assert_allclose(got, a @ b, rtol=1e-5, atol=1e-5)


def test_the_fourth_argument_for_tiles_says_whether_a_sum_begins() -> None:
    a, b = floats(16, 32), floats(32, 16)

    def body(x: Any, w: Any) -> Any:
        total = pl.matmul(pl.load(x, [0, 0], [16, 16]), pl.load(w, [0, 0], [16, 16]))
        for k in pl.range(0, 32, 16):
            total = pl.tile.matmul_acc(total, pl.load(x, [0, k], [16, 16]), pl.load(w, [k, 0], [16, 16]), k == 0)
        return total

    np.testing.assert_allclose(run_on(body, [a, b], (16, 16))[0], a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 7, 32])
def test_rows_add_up_in_their_own_type_and_in_pairs_where_there_is_scratch(rows: int) -> None:
    x = floats(rows, 16).astype(np.float16)

    def in_pairs(a: Any) -> Any:
        return pl.col_sum(pl.load(a, [0, 0], [rows, 16]), pl.create_tile([rows, 16], pl.FP16))

    one_by_one, _ = run_on(lambda a: pl.col_sum(pl.load(a, [0, 0], [rows, 16])), [x], (1, 16), np.float16)
    level = list(x)
    while len(level) > 1:
        odd = level.pop() if len(level) % 2 else None
        level = [a + b for a, b in zip(level[::2], level[1::2], strict=True)]
        level[0] = level[0] if odd is None else level[0] + odd
    np.testing.assert_array_equal(run_on(in_pairs, [x], (1, 16), np.float16)[0][0], level[0])
    np.testing.assert_array_equal(one_by_one[0], functools.reduce(np.add, x))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_an_index_gathers_along_any_axis(axis: int) -> None:
    x = floats(4, 6, 16)
    index = RNG.integers(0, x.shape[axis], (4, 6, 16)).astype(np.int32)
    got, _ = run_on(
        lambda a, i: pl.reshape(pl.gather(a[:, :, :], dim=axis, index=i[:, :, :]), [24, 16]), [x, index], (24, 16)
    )
    np.testing.assert_array_equal(got, np.take_along_axis(x, index, axis).reshape(24, 16))


def test_columns_that_compare_are_listed_and_counted() -> None:
    x = np.array([[3, 1, 3, 0, 2, 3, 5, 3], [0, 0, 0, 0, 0, 0, 0, 3]], np.int32)
    counts = []

    def body(a: Any) -> Any:
        places, count = pl.tile.gather_compare(pl.load(a, [0, 0], [2, 8]), 3, None, offset=10, out_cols=4)
        counts.append([pl.read(count, [0, 0]), pl.read(count, [0, 1])])
        return places

    got, _ = run_on(body, [x], (2, 4), np.int32)
    assert got[0].tolist() == [10, 12, 15, 17]
    assert got[1, 0] == 17
    assert counts == [[4, 1]]


def test_a_tile_is_scattered_by_places_in_the_whole_tile_or_by_a_mask() -> None:
    x, y = floats(2, 8), floats(4, 16)
    index = RNG.permutation(64)[:16].astype(np.int32).reshape(2, 8)
    got, _ = run_on(lambda a, b, i: pl.tile.scatter(b[:, :], a[:, :], i[:, :]), [x, y, index], (4, 16))
    want = y.copy()
    want.reshape(-1)[index.reshape(-1)] = x.reshape(-1)
    np.testing.assert_array_equal(got, want)
    part = floats(4, 8)
    got, _ = run_on(
        lambda a, b: pl.tile.scatter_mask(b[:, :], a[:, :], mask_pattern=pl.tile.MaskPattern.P1010), [part, y], (4, 16)
    )
    want = y.copy()
    want[:, 1::2] = part
    np.testing.assert_array_equal(got, want)


def test_bits_of_whole_numbers_choose() -> None:
    x, mask = floats(2, 16), np.array([[0xAAAA], [0x00FF]], np.uint16)
    got, _ = run_on(lambda a, m: pl.tile.sels(m[:, :], a[:, :], None, -3.0), [x, mask], (2, 16))
    picked = np.array([[n % 2 == 1 for n in range(16)], [n < 8 for n in range(16)]])
    np.testing.assert_array_equal(got, np.where(picked, x, np.float32(-3)))


def test_an_extract_is_a_box_in_another_memory() -> None:
    a, b = floats(32, 64), floats(16, 32)
    got, _ = run_on(
        lambda x, w: pl.matmul(
            pl.tile.extract(pl.load(x, [0, 0], [32, 64], target_memory=pl.Mem.Mat), 16, 32, [16, 16],
                            target_memory=pl.Mem.Left), w[:, :]),
        [a, b], (16, 32),
    )  # fmt: skip
    np.testing.assert_allclose(got, a[16:32, 32:48] @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("to", "relu"), [(np.int8, True), (ml_dtypes.bfloat16, False)])
def test_an_accumulator_is_scaled_on_its_way_out(to: Any, relu: bool) -> None:
    a, b = (RNG.integers(-9, 10, shape).astype(np.int8) for shape in ((16, 32), (32, 64)))

    @pl.jit
    def scaled(
        x: pl.Tensor[[16, 32], pl.INT8],
        w: pl.Tensor[[32, 64], pl.INT8],
        y: pl.Out[pl.Tensor[[16, 64], _type(np.zeros(0, to))]],
    ):
        with pl.at(level=CORE):
            y = pl.store(pl.matmul(x, w), [0, 0], y, pre_quant=0.25, pre_relu=relu)
        return y

    y = np.zeros((16, 64), to)
    scaled(a, b, y)
    want = a.astype(np.int32) @ b.astype(np.int32) * np.float32(0.25)
    want = np.maximum(want, 0) if relu else want
    want = np.rint(want).clip(-128, 127) if to is np.int8 else want
    np.testing.assert_array_equal(y, want.astype(to))


def test_a_cast_may_hold_what_is_too_large() -> None:
    x = np.array([[300.0, -300.0, 5.5, 127.4] * 8], np.float32)
    held, _ = run_on(
        lambda a: pl.cast(pl.cast(pl.load(a, [0, 0], [1, 32]), pl.FP16), pl.INT8, "rint", saturation_mode="on"),
        [x], (1, 32), np.int8,
    )  # fmt: skip
    assert held[0, :4].tolist() == [127, -128, 6, 127]
    wrapped, _ = run_on(
        lambda a: pl.cast(pl.cast(pl.load(a, [0, 0], [1, 32]), pl.FP16), pl.INT8, "rint"), [x], (1, 32), np.int8
    )
    assert wrapped[0, :2].tolist() == [44, -44]  # the low bits, as the chip keeps them


def test_a_program_comes_from_text() -> None:
    text = (
        "@pl.jit\ndef twice(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):\n"
        "    with pl.at(level=pl.Level.CORE_GROUP):\n        y[:] = pl.mul(x, 2.0)\n    return y\n"
    )
    y = np.zeros((16, 16), np.float32)
    pl.parse(text)(np.ones((16, 16), np.float32), y)
    assert (y == 2).all()
    with pytest.raises(TileError, match="defines no function"):
        pl.parse("x = 1")


def test_the_first_form_of_quant_mx_names_the_side() -> None:
    x = floats(32, 64)

    def body(options: dict[str, Any]) -> Any:
        return lambda a: pl.cast(pl.quant_mx(pl.load(a, [0, 0], [32, 64]), **options)[0], pl.FP32, "rint")

    sides = [run_on(body(options), [x], (32, 64)) for options in ({"group_axis": 1}, {"layout": pl.MX_A_ZZ})]
    np.testing.assert_array_equal(sides[0][0], sides[1][0])


def test_rows_gathered_for_the_right_side_stand_there() -> None:
    cache, table, index = floats(16, 32), np.array([0], np.int32), np.arange(16, dtype=np.int32)

    def notices(left: bool) -> list[str]:
        def body(src: Any, idx: Any, tab: Any) -> Any:
            rows = pl.paged_gather(src, idx, tab, 16, 16, 16, is_b_matrix=True)
            other = pl.load(src, [0, 16], [16, 16])
            return pl.matmul(rows, other) if left else pl.matmul(other, rows)

        _, recording = run_on(body, [cache, index, table], (16, 16))
        return [notice.message for notice in recording.notices if "is_b_matrix" in notice.message]

    assert not notices(left=False)
    (found,) = notices(left=True)
    assert "stands on the left" in found


def test_extents_may_be_computed_of_dimensions() -> None:
    pages = pl.dynamic("PAGES")

    @pl.jit
    def copied(x: pl.Tensor[[pages * 16, 32], pl.FP32], n: pl.Tensor[[pages], pl.INT32], y: pl.Out[pl.Tensor]):
        with pl.at(level=CORE):
            y[:] = pl.add(x, 0.0)
        return y

    x = floats(64, 32)
    y = np.zeros_like(x)
    copied(x, np.zeros(4, np.int32), y)
    np.testing.assert_array_equal(x, y)
    computed = (pages + 1, 9 - pages, 2 * pages, pages // 3, 9 // pages)
    assert [extent.value({pages: 4}) for extent in computed] == [5, 5, 8, 1, 2]
    with pytest.raises(TileError, match="axis 0 of n is declared 4"):
        copied(x, np.zeros(3, np.int32), y)


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


# --- values that the compiler knows, launches, the way out of the cube


def test_a_kernel_is_called_with_constants_of_any_kind() -> None:
    @pl.jit.incore
    def copy(a: pl.Tensor, out: pl.Out[pl.Tensor], n: pl.constexpr, kind: pl.constexpr = pl.FP32):
        pl.store(pl.cast(pl.load(a, [0, 0], [n, n]), kind), [0, 0], out)
        return out

    @pl.jit
    def program(
        x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[8, 8], pl.BF16]],
        z: pl.Out[pl.Tensor[[16, 16], pl.FP32]], small: pl.constexpr = 8,
    ):  # fmt: skip
        y = copy(x, y, small, kind=pl.BF16)
        z = copy(x, z, 16, attrs={"arg_directions": [pl.adir.input, pl.adir.output]})
        return y, z

    x = RNG.integers(-9, 9, (16, 16)).astype(np.float32)
    y, z = np.zeros((8, 8), ml_dtypes.bfloat16), np.zeros((16, 16), np.float32)
    program(x, y, z)
    np.testing.assert_array_equal(y.astype(np.float32), x[:8, :8])
    np.testing.assert_array_equal(z, x)
    assert program.param_names == ["x", "y", "z", "small"]
    assert program.output_param_names == ["y", "z"]


def test_a_kernel_says_how_deep_its_ring_is() -> None:
    @pl.jit.incore(level=pl.Level.CHIP_DIE)
    def kernel(x: pl.Tensor[[32, 32], pl.FP32], out: pl.Out[pl.Tensor[[32, 32], pl.FP32]]):
        pl.func_attr({"slot_num": 4, "stationary": x})
        tile = pl.load(x, [0, 0], [32, 32])
        return pl.store(pl.exp(pl.matmul(tile, tile)), [0, 0], out)

    @pl.jit
    def program(x: pl.Tensor[[32, 32], pl.FP32], out: pl.Out[pl.Tensor[[32, 32], pl.FP32]]):
        return kernel(x, out)

    x = floats(32, 32)
    assert [task.ring_slots for task in record(program, x, np.zeros_like(x)).recording.tasks] == [4]


def test_the_runtime_leaves_out_a_task_of_any_form_whose_element_is_not_so() -> None:
    @pl.jit.incore
    def add(z: pl.InOut[pl.Tensor[[16, 16], pl.FP32]], number: pl.constexpr):
        pl.store(pl.add(pl.load(z, [0, 0], [16, 16]), number), [0, 0], z)
        return z

    @pl.jit
    def program(gate: pl.Tensor[[2], pl.INT32], z: pl.InOut[pl.Tensor[[16, 16], pl.FP32]]):
        for turn in pl.range(2):
            with pl.at(level=CORE, predicate=(gate[turn] > 0)) as tid:
                z[:, :] = pl.add(z[:, :], 1.0)
            z, _tid = pl.submit(add, z, 10.0, deps=[tid], predicate=(gate[turn] > 0), timing_slot=1)
        return z

    z = np.zeros((16, 16), np.float32)
    finished = record(program, np.array([0, 3], np.int32), z)
    np.testing.assert_array_equal(z, np.full((16, 16), 11.0, np.float32))
    assert [bool(task.groups) for task in finished.recording.tasks] == [False, False, True, True]


def test_an_accumulator_is_scaled_on_its_way_into_mat() -> None:
    """Cut off at 0, then times the factor, then held within the type."""
    k, q = (RNG.integers(-20, 20, (32, 64)).astype(np.int8) for _ in range(2))
    w = RNG.integers(-3, 4, (32, 16)).astype(np.float16)

    def body(k: Any, q: Any, w: Any) -> Any:
        acc = pl.matmul(pl.load(k, [0, 0], [32, 64]), pl.transpose_view(pl.load(q, [0, 0], [32, 64])))
        mat = pl.create_tile([32, 32], pl.FP16, target_memory=pl.Mem.Mat)
        mat = pl.tile.assemble(mat, acc, [0, 0], pre_quant=-1.0 / 64, pre_relu=True)
        return pl.matmul(mat, pl.load(w, [0, 0], [32, 16]))

    out, _recording = run_on(body, [k, q, w], (32, 16))
    wanted = np.maximum(k.astype(np.float32) @ q.astype(np.float32).T, 0) / -64
    np.testing.assert_allclose(out, wanted.astype(np.float16).astype(np.float32) @ w.astype(np.float32), rtol=1e-5)


@pytest.mark.parametrize("how", ["load", "scope"])
def test_what_is_read_past_l2_comes_from_hbm_each_time(how: str) -> None:
    def program(bypass: bool) -> Any:
        @pl.jit
        def kernel(x: pl.Tensor[[256, 1024], pl.FP32], out: pl.Out[pl.Tensor[[256, 1024], pl.FP32]]):
            for block in pl.spmd(16):
                if bypass and how == "scope":
                    pl.set_cache_policy(x, pl.CachePolicy.BYPASS)
                policy = pl.CachePolicy.BYPASS if bypass and how == "load" else None
                for turn in pl.range(16):
                    tile = pl.load(x, [16 * turn, 0], [16, 1024], cache=policy)
                    pl.store(tile, [16 * block, 0], out)
            return out

        x = RNG.standard_normal((256, 1024)).astype(np.float32)
        out = np.zeros_like(x)
        return record(kernel, x, out).recording

    device = load("910b2")
    cached, past = (simulate(Program(program(bypass), device)).wall_ns for bypass in (False, True))
    assert past > cached


# --- graphs


@pl.jit
def changing(x: pl.InOut[pl.Tensor[[16, 32], pl.FP32]]):
    for n in pl.unroll(2):
        with pl.graph("part"):
            with pl.at(level=CORE, name_hint="first"):
                x[:] = pl.add(x, 1.0)
            if n == 1:
                with pl.at(level=CORE, name_hint="second"):
                    x[:] = pl.add(x, 1.0)
    return x


@pl.jit
def nested(x: pl.InOut[pl.Tensor[[16, 32], pl.FP32]]):
    with pl.graph("outer"), pl.graph("inner"), pl.at(level=CORE):
        x[:] = pl.add(x, 1.0)
    return x


@pytest.mark.parametrize(
    ("program", "about"), [(changing, "launches 2 tasks here and 1"), (nested, "inside the graph")]
)
def test_what_a_replay_could_not_repeat_is_refused(program: Any, about: str) -> None:
    with pytest.raises(TileError, match=about):
        program(floats(16, 32))


# --- golden.run of September


@pl.jit
def doubled(x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
    with pl.at(level=CORE):
        y[:] = pl.mul(x, 2.0)
    return y


@pytest.mark.parametrize(("factor", "settings"), [(2, dict), (3, dict), (3, RunSettings)])
def test_outputs_are_the_parameters_declared_so(factor: int, settings: Any) -> None:
    specs = [TensorSpec("x", [16, 16], np.float32, init_value=1.0), TensorSpec("y", [16, 16], np.float32)]

    def expected(values: dict[str, Any]) -> None:
        values["y"][:] = values["x"] * factor

    run: Any = golden.run
    config = settings(platform="a5", device_id=0, ring_heap=1 << 20)
    result = run(fn=doubled, specs=specs, golden_fn=expected, config=config)
    assert (result.passed, result.compared) == (factor == 2, True)
    assert [spec.direction for spec in specs] == ["In", "Out"]


def test_a_script_that_compiles_its_program_runs(tmp_path: Path) -> None:
    script = tmp_path / "compiled.py"
    script.write_text(
        """
import numpy as np
import pypto.language as pl
from pypto import ir
from pypto.pypto_core import passes

@pl.program
class Twice:
    @pl.function(type=pl.FunctionType.Orchestration)
    def main(self, x: pl.Tensor[[16, 16], pl.FP32], y: pl.Out[pl.Tensor[[16, 16], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP):
            y[:] = pl.mul(x, 2.0)
        return y

with passes.PassContext([], runtime=passes.RuntimeKind.HOST_BUILD_GRAPH):
    compiled = ir.compile(Twice, platform="a2a3sim")
    x, y = np.ones((16, 16), np.float32), np.zeros((16, 16), np.float32)
    compiled(x, y)
assert (y == 2).all()
"""
    )
    ran = run_script(script, mode="values")
    assert (ran.exit_code, len(ran.recordings)) == (0, 1)
