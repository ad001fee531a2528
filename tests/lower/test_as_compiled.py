"""What the compiler's assembly taught: memory of unused buffers and of gathers, boxes that only run time knows."""

from __future__ import annotations

import npuscope.tile as pl
from npuscope.tile import Tensor as T
from tests.assemblies import BOX, ROW, VIEW, allocated, box, load
from tests.lower.kernels import lowered, tensor, used
from tests.lower.test_assembly import vector


def test_a_buffer_that_nobody_uses_takes_no_memory() -> None:
    """A sum's, which the first product makes anew: a kernel of the cube has nothing in Vec."""

    @pl.jit
    def main(x: T[[16, 256], pl.BF16], w: T[[256, 64], pl.BF16], out: pl.Out[T[[16, 64], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="product"):
            acc = pl.create_tensor([16, 64], dtype=pl.FP32)
            for k in pl.range(0, 256, 128):
                if k == 0:
                    acc = pl.matmul(x[:, 0:128], w[0:128, :], out_dtype=pl.FP32)
                else:
                    acc = pl.matmul_acc(acc, x[:, k : k + 128], w[k : k + 128, :])
            out = pl.assemble(out, acc, [0, 0])
        return out

    arguments = (tensor((16, 256), "BF16"), tensor((256, 64), "BF16"), tensor((16, 64), "FP32"))
    assert "Vec" not in {space for _, space in used(lowered(main, *arguments)[1])}


def test_a_gather_by_index_lies_apart_with_two_rows_of_scratch() -> None:
    @pl.jit
    def main(x: T[[32, 64], pl.FP32], index: T[[32, 64], pl.INT32], out: pl.Out[T[[32, 64], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="swap"):
            out = pl.assemble(out, pl.gather(x[:, :], dim=-1, index=index[:, :]), [0, 0])
        return out

    arguments = (tensor((32, 64), "FP32"), tensor((32, 64), "INT32"), tensor((32, 64), "FP32"))
    assert used(lowered(main, *arguments)[1])["swap", "Vec"] == 3 * 32 * 64 * 4 + 2 * 64 * 4


def test_a_box_of_a_size_that_only_run_time_knows_counts_as_its_whole_tile() -> None:
    rows = box("from", "%c0").replace("sizes = [%c16", "sizes = [%n").replace("view<16x64", "view<?x64")
    loaded = load("from", "x__tile").replace(BOX, BOX.replace("16x", "?x"))
    body = VIEW, rows, allocated("x__tile", ROW, 0, 16, 64), loaded
    one = vector(*body, arguments="%arg0: !pto.ptr<f32>, %n: index")
    (access,) = one.lowered.instructions[0].accesses
    assert access.shape == (16, 64)
    assert "known at run time only" in next(iter(one.notes))
    assert one.assumed == {}


def copies(main: object) -> list[tuple[str, tuple[int, ...], bool]]:
    """Of each copy on chip the tile, its shape and whether it stays where it was."""
    _, (one,) = lowered(main)
    values = one.lowered.values
    found = [item for item in one.lowered.instructions if item.name == "copy" and item.pipe == "V"]
    return [
        (
            values[item.result].name,
            values[item.result].shape,
            values[item.result].storage == values[item.reads[0]].storage,
        )
        for item in found
        if item.result is not None
    ]


def test_columns_of_a_tile_that_meet_a_row_are_copied_before_each_reader() -> None:
    """As in rope_kv_cache of Qwen3-32B (PTOAS test/samples): a textract before each tcolexpandmul."""

    @pl.jit
    def main(x: T[[8, 128], pl.FP32], cos: T[[1, 64], pl.FP32], out: pl.Out[T[[8, 64], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rope"):
            block, row = x[:, :], cos[:, :]
            tile = pl.mul(block, 2.0)
            low = tile[:, 0:64]
            out = pl.assemble(out, pl.add(pl.col_expand_mul(low, row), pl.col_expand_add(low, row)), [0, 0])
        return out

    assert copies(main) == [("low", (8, 64), False)] * 2


def test_rows_in_one_piece_are_copied_onto_themselves_once_and_other_readers_take_a_part_as_it_is() -> None:
    @pl.jit
    def main(x: T[[8, 128], pl.FP32], cos: T[[2, 128], pl.FP32], out: pl.Out[T[[8, 128], pl.FP32]]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="rope"):
            both = pl.mul(cos[:, :], 2.0)
            row = both[0:1, :]
            first = pl.col_expand_mul(x[:, :], row)
            out = pl.assemble(out, pl.add(first, pl.col_expand_mul(first, row)), [0, 0])
            out = pl.assemble(out, pl.add(both[0:1, :], row), [0, 0])
        return out

    assert copies(main) == [("row", (1, 128), True)]
