"""What the chip cannot do is an error at its line, with the way that it can; what it can do is not."""

from __future__ import annotations

from typing import Any

from linted import line_of

import npuscope.tile as pl
from npuscope.check.rule import Finding
from npuscope.check.rules.moves import unequal_move
from npuscope.check.run import unfit
from tests.lower.kernels import lowered, program, tensor

ROWS, DEEP, WIDE = 16, 64, 32


def errors(fn: Any, *arguments: Any, chip: str = "910b1") -> list[Finding]:
    return list(unfit(program(fn, *arguments, chip=chip)))


def doubts(fn: Any, *arguments: Any) -> list[Finding]:
    """What the compiler may refuse: no reason not to simulate."""
    checked = program(fn, *arguments)
    assert unfit(checked) == ()
    return list(unequal_move.check(checked))


X: Any = pl.Tensor[[ROWS, DEEP], pl.BF16]
W: Any = pl.Tensor[[DEEP, WIDE], pl.BF16]
Y: Any = pl.Out[pl.Tensor[[ROWS, WIDE], pl.FP32]]


def test_an_accumulator_read_after_another_product_was_added_would_need_a_copy() -> None:
    @pl.jit
    def kernel(x: X, w: W, one: Y, both: Y):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="sums"):
            first = pl.matmul(x[:, 0:32], w[0:32, :])
            second = pl.matmul_acc(first, x[:, 32:64], w[32:64, :])  # adds to it
            one = pl.assemble(one, first, [0, 0])
            both = pl.assemble(both, second, [0, 0])
        return one, both

    [error] = errors(kernel)
    assert (error.id, error.severity) == ("illegal-move", "error")
    assert "Acc to Acc" in error.message
    assert error.line == line_of(__file__, "# adds to it")
    assert "Store the first result before" in error.remedy


def test_storing_it_first_is_legal() -> None:
    @pl.jit
    def kernel(x: X, w: W, one: Y, both: Y):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="sums"):
            first = pl.matmul(x[:, 0:32], w[0:32, :])
            one = pl.assemble(one, first, [0, 0])
            second = pl.matmul_acc(first, x[:, 32:64], w[32:64, :])
            both = pl.assemble(both, second, [0, 0])
        return one, both

    assert errors(kernel) == []


def test_a_loop_that_adds_to_the_same_seed_in_every_turn_would_need_a_copy() -> None:
    @pl.jit
    def kernel(x: X, w: W, one: Y, both: Y):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="sums"):
            seed = pl.matmul(x[:, 0:32], w[0:32, :])
            for _ in pl.range(3):
                again = pl.matmul_acc(seed, x[:, 32:64], w[32:64, :])
                one = pl.assemble(one, again, [0, 0])
        return one

    assert [error.id for error in errors(kernel)] == ["illegal-move"]


def test_a_vector_tile_moved_to_mat_is_handed_over_where_a_product_reads_it() -> None:
    """The compiler of September makes the ring's push and pop of such a move in a kernel of both kinds of core."""

    @pl.jit
    def kernel(x: X, w: W, one: Y, both: Y):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="moved"):
            staged = pl.move(pl.neg(x[:, 0:64]), target_memory=pl.MemorySpace.Mat)
            one = pl.assemble(one, pl.matmul(staged, w[0:64, :]), [0, 0])
        return one

    assert errors(kernel) == errors(kernel, chip="950") == []


def test_a_vector_tile_moved_to_mat_alone_has_no_way_on_the_910b() -> None:
    @pl.jit
    def kernel(x: X, w: W, one: Y, both: Y):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="moved"):
            pl.move(pl.neg(x[:, 0:64]), target_memory=pl.MemorySpace.Mat)  # no way
            one = pl.assemble(one, pl.cast(x[:, 0:64], pl.FP32), [0, 0])
        return one

    [error] = errors(kernel)
    assert "no move from Vec to Mat" in error.message
    assert error.line == line_of(__file__, "# no way")
    assert "Leave the memory space out" in error.remedy


def test_left_out_the_space_is_the_compilers_and_the_ring_carries_it() -> None:
    @pl.jit
    def kernel(x: X, w: W, one: Y, both: Y):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="handed"):
            one = pl.assemble(one, pl.matmul(pl.neg(x[:, 0:64]), w[0:64, :]), [0, 0])
        return one

    checked, found = lowered(kernel)
    assert unfit(checked) == ()
    [ring] = found[0].lowered.rings
    assert (ring.direction, ring.space, ring.slots, ring.slot) == ("V2C", "Mat", 2, ROWS * DEEP * 2)


def test_global_memory_cannot_add_bf16_on_the_950() -> None:
    @pl.jit
    def kernel(x: pl.Tensor, out: pl.InOut[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="added"):
            out = pl.assemble(out, pl.neg(x[:, :]), [0, 0], atomic=pl.AtomicType.Add)
        return out

    tensors = (tensor((ROWS, DEEP), "BF16"), tensor((ROWS, DEEP), "BF16"))
    assert errors(kernel, *tensors) == []
    [error] = errors(kernel, *tensors, chip="950")
    assert error.id == "atomic-type"
    assert "cannot add BF16" in error.message


def test_a_column_of_few_rows_is_misaligned() -> None:
    def kernel(rows: int) -> Any:
        @pl.jit
        def sums(x: pl.Tensor, out: pl.Out[pl.Tensor]):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="sums"):
                out = pl.assemble(out, pl.row_sum(x[:, :]), [0, 0])
            return out

        return sums, tensor((rows, 64), "FP32"), tensor((rows, 1), "FP32")

    assert errors(*kernel(8)) == []  # 32 bytes
    [error] = errors(*kernel(5))
    assert error.id == "misaligned-tile"
    assert "20 bytes" in error.message
    assert "multiple of 8 rows" in error.remedy


def test_a_hard_barrier_needs_every_core() -> None:
    def kernel(blocks: int, together: bool) -> Any:
        @pl.jit
        def waits(x: pl.Tensor, out: pl.Out[pl.Tensor]):
            with pl.spmd(blocks, name_hint="waits", sync_start=together):
                row = pl.get_block_idx()
                tile = pl.neg(x[row : row + 1, :])
                pl.system.syncall(core_type="aiv_only", mode="hard")
                out = pl.assemble(out, tile, [row, 0])
            return out

        return waits, tensor((blocks, 64), "FP32"), tensor((blocks, 64), "FP32")

    assert errors(*kernel(48, together=True)) == []
    for blocks, together, told in ((24, True, "24 blocks"), (48, False, "without sync_start")):
        [error] = errors(*kernel(blocks, together))
        assert error.id == "syncall-occupancy"
        assert told in error.message
        assert "pl.spmd(48, sync_start=True)" in error.remedy


def test_unsigned_words_cannot_be_cast_and_their_bits_can_be_read_as_signed_ones() -> None:
    """An agent's kernel died of this in the compiler: TCVT has no UINT32 to FP32."""

    @pl.jit
    def kernel(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="ranks"):
            y[:, :] = pl.cast(x[:, :], pl.FP32)  # no such cast
        return y

    @pl.jit
    def mended(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="ranks"):
            y[:, :] = pl.cast(pl.reinterpret_view(x[:, :], pl.INT32), pl.FP32)
        return y

    for chip in ("910b1", "950"):
        [error] = errors(kernel, tensor((8, 64), "UINT32"), tensor((8, 64), "FP32"), chip=chip)
        assert (error.id, error.line) == ("illegal-cast", line_of(__file__, "# no such cast"))
        assert "from UINT32 to FP32" in error.message
        assert "pl.reinterpret_view(x, pl.INT32)" in error.remedy
        assert errors(mended, tensor((8, 64), "UINT32"), tensor((8, 64), "FP32"), chip=chip) == []


def test_products_with_scales_are_for_a5() -> None:
    @pl.jit
    def kernel(
        x: pl.Tensor[[32, 64], pl.FP32],
        w: pl.Tensor[[64, 32], pl.FP8E4M3FN],
        s: pl.Tensor[[2, 32], pl.FP8E8M0],
        y: pl.Out[pl.Tensor],
    ):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="scaled"):
            values, scales = pl.quant_mx(x[:, :], group_axis=1)
            y[:, :] = pl.matmul_mx(values, scales, w, s)  # with scales
        return y

    given = [tensor((32, 64), "FP32"), tensor((64, 32), "FP8E4M3FN"), tensor((2, 32), "FP8E8M0")]
    [error] = errors(kernel, *given, tensor((32, 32), "FP32"), chip="910b1")
    assert (error.id, error.line) == ("illegal-product", line_of(__file__, "# with scales"))
    assert errors(kernel, *given, tensor((32, 32), "FP32"), chip="950") == []


def test_casts_that_are_chains_are_legal() -> None:
    @pl.jit
    def kernel(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="quantised"):
            y[:, :] = pl.cast(x[:, :], pl.INT8)  # BF16 to FP32 to FP16 to INT8
        return y

    assert errors(kernel, tensor((8, 64), "BF16"), tensor((8, 64), "INT8")) == []


def test_an_accumulator_does_not_go_straight_to_the_vector_unit() -> None:
    """Another death in the compiler: no move from Acc to Vec on the 910B; a chip with a ring on chip has it."""

    @pl.jit
    def kernel(x: X, w: W, one: Y, both: Y):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
            product = pl.matmul(x[:, :], w[:, :])
            tile = pl.move(product, target_memory=pl.MemorySpace.Vec)  # straight
            one[:, :] = pl.add(tile, 1.0)
        return one, both

    [error] = errors(kernel)
    assert (error.id, error.line) == ("illegal-move", line_of(__file__, "# straight"))
    assert "Acc to Vec" in error.message
    assert "Leave the memory space out" in error.remedy
    assert errors(kernel, chip="950") == []


def test_a_loop_cannot_carry_a_tile_that_changes_its_shape() -> None:
    """The third: a move between tiles of different shape."""

    @pl.jit
    def halved(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="halved"):
            rows = x[:, :]
            for _ in pl.range(2):
                rows = pl.add(rows[0:8, :], 1.0)  # half as many
            y[0:8, :] = rows
        return y

    @pl.jit
    def other_type(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="halved"):
            rows = x[0:8, :]
            for i in pl.range(2):
                if i == 0:
                    rows = pl.cast(rows, pl.BF16)  # not what it was
            y[0:8, :] = pl.cast(rows, pl.FP32)
        return y

    @pl.jit
    def mended(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="halved"):
            rows = x[0:8, :]
            for _ in pl.range(2):
                rows = pl.add(rows, 1.0)
                part = x[0:16, :]  # a name that no turn leaves to the next may hold anything
                part = pl.add(part[0:8, :], 1.0)
                rows = pl.add(rows, part)
            y[0:8, :] = rows
        return y

    given = tensor((16, 64), "FP32"), tensor((16, 64), "FP32")
    [doubt] = doubts(halved, *given)
    assert (doubt.id, doubt.severity, doubt.line) == ("unequal-move", "warning", line_of(__file__, "# half as many"))
    assert doubt.message.startswith("rows is [8, 64] FP32 here and [16, 64] FP32 on line")
    assert "name of its own" in doubt.remedy
    [doubt] = doubts(other_type, *given)
    assert (doubt.id, doubt.line) == ("unequal-move", line_of(__file__, "# not what it was"))
    assert doubts(mended, *given) == []


def test_a_tile_that_rows_are_gathered_into_keeps_its_shape() -> None:
    @pl.jit
    def kernel(x: pl.Tensor, q: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="gathered"):
            rows = pl.create_l1([64, 128], pl.BF16)
            for r in pl.range(64):
                if r % 2 == 0:
                    rows = pl.gather_row(rows, x, [r, 0], [63 - r, 0], [1, 128])
                else:
                    rows = pl.gather_row(rows, x, [r, 0], [r, 0], [1, 128])
            y[:, :] = pl.matmul(q[:, :], rows, b_trans=True, out_dtype=pl.FP32)
        return y

    assert doubts(kernel, tensor((64, 128), "BF16"), tensor((16, 128), "BF16"), tensor((16, 64), "FP32")) == []


def test_ones_in_front_of_a_shape_are_no_other_shape() -> None:
    """As public programs have it, which compile: the accumulator of a slice of stacked weights."""

    @pl.jit
    def kernel(x: pl.Tensor, w: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="stacked"):
            total = pl.create_tensor([1, 16, 64], dtype=pl.FP32)
            for k in pl.range(0, 64, 32):
                if k == 0:
                    total = pl.matmul(x[:, k : k + 32], w[k : k + 32, :])
                else:
                    total = pl.matmul_acc(total, x[:, k : k + 32], w[k : k + 32, :])
            y[:, :] = pl.reshape(total, [16, 64])
        return y

    assert doubts(kernel, tensor((16, 64), "BF16"), tensor((64, 64), "BF16"), tensor((16, 64), "FP32")) == []


def test_two_branches_leave_tiles_of_one_shape() -> None:
    @pl.jit
    def kernel(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        for row in pl.parallel(0, 32, 16):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="either"):
                if row == 0:  # noqa: SIM108
                    rows = x[0:16, :]
                else:
                    rows = x[16:24, :]  # the other
                y[0:8, :] = rows[0:8, :]
        return y

    [doubt] = doubts(kernel, tensor((32, 64), "FP32"), tensor((32, 64), "FP32"))
    assert (doubt.id, doubt.line) == ("unequal-move", line_of(__file__, "# the other"))
