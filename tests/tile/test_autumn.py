"""Ops that programs of autumn 2026 have and those of summer had not: by index, in parts, on the way out."""

# No `from __future__ import annotations`: signatures below name types that are local to a function.

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from same_record import first_difference

import npuscope.tile as pl
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.ops.shaping import philox
from npuscope.tile.fault import TileError
from npuscope.tile.record.walk import ops_of
from npuscope.tile.run.execute import record
from tests.tile.one_task import CORE, RNG, floats, run_on, type_of


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
    finished = record(back, got, index, y)
    np.testing.assert_array_equal(y, flat)
    assert [notice.kind for notice in finished.recording.notices] == ["a5"]


@pytest.mark.parametrize(
    ("index", "space", "about"),
    [
        (np.zeros((1, 16), np.int16), pl.Mem.Vec, "indices must be INT32"),
        (np.zeros((1, 8), np.int32), pl.Mem.Mat, r"\[8, 32\] FP16 into Mat.*Rows in sixteens"),
    ],
)
def test_a_gather_that_the_compiler_refuses_is_refused(index: np.ndarray, space: Any, about: str) -> None:
    with pytest.raises(TileError, match=about):
        run_on(lambda mem, idx: pl.mgather(mem, idx, target_memory=space), [floats(20, 32).astype(np.float16), index],
               (16, 32), np.float16)  # fmt: skip


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


def test_what_is_added_up_in_a_part_of_an_accumulator_is_not_put_there_again() -> None:
    a, b = floats(32, 64), floats(64, 32)

    @pl.jit
    def product(
        x: pl.Tensor[[32, 64], pl.FP32], w: pl.Tensor[[64, 32], pl.FP32], y: pl.Out[pl.Tensor[[32, 32], pl.FP32]]
    ):
        with pl.at(level=CORE):
            acc = pl.create_tile([32, 32], pl.FP32, target_memory=pl.Mem.Acc)
            for t in pl.range(0, 32, 16):
                for k in pl.range(0, 64, 16):
                    acc[t : t + 16, :] = pl.matmul_acc(
                        acc[t : t + 16, :], x[t : t + 16, k : k + 16], w[k : k + 16, :], init_cond=(k == 0)
                    )
            y = pl.store(acc, [0, 0], y)
        return y

    y = np.zeros((32, 32), np.float32)
    full, shapes = (record(product, a, b, y, mode=mode).recording for mode in ("values", "shapes"))
    np.testing.assert_allclose(y, a @ b, rtol=1e-5, atol=1e-5)
    assert first_difference(full, shapes) is None
    assert {op.plane for op, _ in ops_of(full.bodies[0]) if op.name == "assemble"} == {"view"}
    (planned,) = Program(full, load("910b2")).planned.values()
    assert {one.unit for one in planned.lowered.instructions} == {"AIC"}


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
        y: pl.Out[pl.Tensor[[16, 64], type_of(np.zeros(0, to))]],
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
