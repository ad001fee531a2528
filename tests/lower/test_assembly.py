"""The compiler's assembly as a lowered body: what runs, where tiles lie, what is not known of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuscope.base.errors import BadInput
from npuscope.lower.assembly_body import Assembly, assembly_of
from npuscope.lower.assembly_text import parse_assembly, tile_of
from npuscope.lower.chip import chip_to_lower_for
from npuscope.lower.model import Instruction, Repeat, instructions
from npuscope.lower.program import PlannedBody
from npuscope.time.core.pipes import time_block
from npuscope.time.core.stream import stream_of
from tests.assemblies import ROW, VIEW, allocated, binary, box, doubled, function, load, module, store, tile

DEVICE = chip_to_lower_for("ascend910b1")


def read(text: str, **scalars: int) -> Assembly:
    return assembly_of(parse_assembly(text, Path("kernel.pto")), DEVICE, scalars)


def vector(*body: str, arguments: str = "%arg0: !pto.ptr<f32>") -> Assembly:
    return read(module(function("kernel", "vector", body, arguments)))


def ops(one: Assembly) -> list[str]:
    return [f"{item.pipe} {item.name}" for item in one.lowered.instructions if item.pipe]


def ends(one: Assembly) -> dict[str, int]:
    return {space.space: space.used for space in one.plan}


def timed(one: Assembly) -> float:
    return time_block(stream_of(PlannedBody("kernel", 0, one.lowered, one.plan), DEVICE)).duration


# --- what runs


def test_a_loop_of_equal_turns_is_one_repeat_with_pipes_boxes_and_bytes() -> None:
    one = read(doubled())
    (loop,) = one.lowered.items
    assert isinstance(loop, Repeat)
    assert loop.count == 4
    assert ops(one) == ["MTE2 load", "V add", "MTE3 store"]
    first = one.lowered.instructions[0]
    assert [(access.shape, access.strides, access.mode) for access in first.accesses] == [((16, 64), (256, 1), "read")]
    assert ends(one) == {"Vec": 8192}
    assert (one.unknown, one.assumed, one.clobbered) == ({}, {}, ())


def test_turns_that_differ_are_put_together_where_they_are_equal() -> None:
    one = vector(
        allocated("x__tile", ROW, 0, 16, 64),
        allocated("y__tile", ROW, 4096, 16, 64),
        "scf.for %i = %c0 to %c8 step %c2 {",
        "%first = arith.cmpi eq, %i, %c0 : index",
        "scf.if %first {",
        binary("tmul", "x__tile", "x__tile", "y__tile"),
        "} else {",
        binary("tadd", "x__tile", "y__tile", "y__tile"),
        "}",
        "}",
    )
    loops = [item for item in one.lowered.items if isinstance(item, Repeat)]
    assert [(loop.count, [op.name for op in instructions(loop.items) if op.pipe]) for loop in loops] == [
        (1, ["mul"]),
        (3, ["add"]),
    ]
    assert loops[0].loop == loops[1].loop


def test_what_a_loop_carries_is_computed() -> None:
    one = vector(
        allocated("x__tile", ROW, 0, 16, 64),
        "%last = scf.for %i = %c0 to %c3 step %c1 iter_args(%n = %c1) -> (index) {",
        "%next = arith.muli %n, %c2 : index",
        "scf.yield %next : index",
        "}",
        "scf.for %j = %c0 to %last step %c1 {",
        binary("tadd", "x__tile", "x__tile", "x__tile"),
        "}",
    )
    assert [item.count for item in one.lowered.items if isinstance(item, Repeat)] == [3, 8]


def test_the_block_that_runs_decides_its_branch() -> None:
    text = module(
        function(
            "kernel",
            "vector",
            [
                allocated("x__tile", ROW, 0, 16, 64),
                "%block = arith.index_cast %__pypto_spmd_block_idx : i32 to index",
                "%mine = arith.cmpi sge, %block, %c2 : index",
                "scf.if %mine {",
                binary("tadd", "x__tile", "x__tile", "x__tile"),
                "}",
            ],
            "%arg0: !pto.ptr<f32>, %__pypto_spmd_block_idx: i32",
        )
    )
    assert ops(read(text)) == []
    assert ops(read(text, __pypto_spmd_block_idx=2)) == ["V add"]


def test_what_run_time_data_decides_is_named_with_its_line() -> None:
    one = vector(
        allocated("x__tile", ROW, 0, 16, 64),
        "%n = pto.load_scalar %arg0[%c0] : !pto.ptr<i32> -> i32",
        "scf.for %i = %c0 to %n step %c1 {",
        binary("tadd", "x__tile", "x__tile", "x__tile"),
        "}",
        "%some = arith.cmpi sgt, %n, %c0 : index",
        "scf.if %some {",
        binary("tadd", "x__tile", "x__tile", "x__tile"),
        binary("tmul", "x__tile", "x__tile", "x__tile"),
        "} else {",
        binary("tsub", "x__tile", "x__tile", "x__tile"),
        "}",
    )
    assert ops(one) == ["S read", "V add", "V add", "V mul"]
    assert [what.partition(":")[0] for _, what in sorted(one.assumed.items())] == [
        "a loop whose turns are known at run time only",
        "a branch that run-time data decides",
    ]


def test_a_loop_from_a_number_to_the_same_and_two_has_two_turns() -> None:
    """As of a mixed kernel that is given where its part of the columns begins."""
    one = vector(
        allocated("x__tile", ROW, 0, 16, 64),
        "%more = arith.addi %first, %c1 : index",
        "%last = arith.addi %more, %c1 : index",
        "scf.for %i = %first to %last step %c1 {",
        binary("tadd", "x__tile", "x__tile", "x__tile"),
        "}",
        arguments="%arg0: !pto.ptr<f32>, %first: index",
    )
    (loop,) = one.lowered.items
    assert isinstance(loop, Repeat)
    assert loop.count == 2
    assert one.assumed == {}


def test_a_short_type_of_scales_has_rows_and_columns() -> None:
    scales = tile_of("mat, 4x32x!pto.f8E8M0, valid=4x16, slayout=col_major, fractal=32")
    assert scales is not None
    assert (scales.space, scales.dtype, scales.rows, scales.columns) == ("mat", "!pto.f8E8M0", 4, 32)


def test_ops_that_are_not_known_are_counted() -> None:
    line = f"pto.tmystery ins(%x__tile : {ROW}) outs(%x__tile : {ROW})"
    one = vector(allocated("x__tile", ROW, 0, 16, 64), line, line)
    assert {name: count for name, (_, count) in one.unknown.items()} == {"pto.tmystery": 2}
    assert list(one.notes) == ["kernel.pto:7: pto.tmystery is not known, so it takes no time here (2 times)"]


def test_numbers_among_operands_and_scratch_tiles_are_told_apart() -> None:
    sums = tile("vec", 16, 1)
    one = vector(
        allocated("x__tile", ROW, 0, 16, 64),
        allocated("tmp", ROW, 4096, 16, 64),
        allocated("s__tile", sums, 8192, 16, 1),
        f"pto.tmuls ins(%x__tile, %cst : {ROW}, f32) outs(%x__tile : {ROW})",
        f"pto.trowsum ins(%x__tile, %tmp : {ROW}, {ROW}) outs(%s__tile : {sums})",
    )
    scaled, summed = one.lowered.instructions
    assert scaled.operands[1] is None
    assert (len(summed.reads), len(summed.scratch)) == (1, 1)


def test_source_lines_where_the_compiler_wrote_them() -> None:
    one = read(doubled(loc=' loc("/builder/home/layer.py":17:5)'))
    load_, add, _ = (item for item in one.lowered.instructions if item.pipe)
    assert one.places[load_.site] == ("/builder/home/layer.py", 17)
    assert one.places[add.site][0] == "kernel.pto"


# --- where tiles lie


def test_what_lies_in_the_same_bytes_waits_and_what_does_not_overlaps() -> None:
    def two_loads(second: int) -> float:
        other = VIEW.replace("%x_view", "%y_view").replace("%arg0", "%arg1")
        body = [VIEW, other, box("from", "%c0"), box("to", "%c0").replace("%x_view", "%y_view")]
        for n, address in enumerate((0, second)):
            body += [allocated(f"x{n}", ROW, address, 16, 64), load("from", f"x{n}")]
            body += [binary("tadd", f"x{n}", f"x{n}", f"x{n}"), store(f"x{n}", "to")]
        return timed(vector(*body, arguments="%arg0: !pto.ptr<f32>, %arg1: !pto.ptr<f32>"))

    assert two_loads(0) > two_loads(4096) + 100


def test_a_tile_read_by_another_name_is_awaited() -> None:
    flat = tile("vec", 8, 128)
    loaded = [VIEW, box("from", "%c0"), allocated("x__tile", ROW, 0, 16, 64), load("from", "x__tile")]

    def added(address: int) -> float:
        names = [allocated("y__tile", ROW, 8192, 16, 64), allocated("flat", flat, address, 8, 128)]
        return timed(vector(*loaded, *names, f"pto.tadd ins(%flat, %flat : {flat}, {flat}) outs(%y__tile : {ROW})"))

    assert added(0) > timed(vector(*loaded))
    assert added(4096) == timed(vector(*loaded))


def test_turns_that_are_written_out_side_by_side_load_when_all_their_slots_are_free() -> None:
    def loop(second: str) -> Assembly:
        body = [VIEW, "scf.for %i = %c0 to %c8 step %c2 {", "%at = arith.muli %i, %c64 : index", box("from", "%at")]
        body += [allocated(f"x{n}", ROW, address, 16, 64) for n, address in enumerate((0, 4096))]
        body += [load("from", "x0"), box("other", "%at").replace("%x_view", second), load("other", "x1")]
        for n in range(2):
            body += [binary("tdiv", f"x{n}", f"x{n}", f"x{n}"), store(f"x{n}", "from")]
        other = VIEW.replace("%x_view", "%y_view").replace("%arg0", "%arg1")
        return vector(other, *body, "}", arguments="%arg0: !pto.ptr<f32>, %arg1: !pto.ptr<f32>")

    one, apart = loop("%x_view"), loop("%y_view")
    assert [item.name for item in one.lowered.instructions].count("hold") == 1
    assert "hold" not in {item.name for item in apart.lowered.instructions}
    assert timed(one) > timed(apart)
    assert one.plan == apart.plan


def test_live_tiles_that_share_bytes_are_found_and_reuse_is_not() -> None:
    def kernel(last: str) -> Assembly:
        return vector(
            VIEW, box("from", "%c0"),
            allocated("x__tile", ROW, 0, 16, 64), load("from", "x__tile"),
            allocated("y__tile", ROW, 2048, 16, 64), load("from", "y__tile"),
            allocated("z__tile", ROW, 8192, 16, 64), binary("tadd", last, "y__tile", "z__tile"),
        )  # fmt: skip

    assert [found[:2] for found in kernel("x__tile").clobbered] == [("x", "y")]
    assert kernel("y__tile").clobbered == ()


def test_rows_that_may_lie_beside_what_was_written_are_no_fault() -> None:
    """As of a loop over the rows behind the first, whose bytes another tile has by then; a row at a known place is."""

    def kernel(row: str) -> Assembly:
        part, two = tile("vec", 1, 64), tile("vec", 2, 64)
        return vector(
            VIEW, box("from", "%c0"),
            allocated("x__tile", ROW, 0, 16, 64), load("from", "x__tile"),
            allocated("y__tile", two, 0, 2, 64), allocated("z__tile", part, 8192, 1, 64),
            "scf.for %i = %c2 to %c16 step %c1 {",
            f"%row = pto.subview %x__tile[{row}, %c0] sizes [1, 64] : {ROW} -> {part}",
            f"pto.texp ins(%z__tile : {part}) outs(%y__tile : {two})",
            f"pto.tadd ins(%row, %y__tile : {part}, {two}) outs(%z__tile : {part})",
            "}",
        )  # fmt: skip

    assert kernel("%i").clobbered == ()
    assert [found[:2] for found in kernel("%c0").clobbered] == [("x", "y")]


def test_branches_that_are_not_taken_still_take_memory() -> None:
    one = vector(
        "%never = arith.cmpi eq, %c1, %c2 : index",
        "scf.if %never {",
        allocated("x__tile", ROW, 65536, 16, 64),
        binary("tadd", "x__tile", "x__tile", "x__tile"),
        "}",
    )
    assert ops(one) == []
    assert ends(one) == {"Vec": 65536 + 4096}


def test_tiles_without_addresses_are_added_up_and_said_to_be() -> None:
    bare = f"pto.alloc_tile : {ROW}"
    one = vector(f"%x = {bare}", f"%y = {bare}", binary("tadd", "x", "x", "y"))
    assert ends(one) == {"Vec": 8192}
    assert "no addresses" in next(iter(one.notes))


# --- cube and vector core


def mixed() -> str:
    acc, left, right = tile("acc", 16, 64), tile("left", 16, 16, "bf16"), tile("right", 16, 64, "bf16")
    ring = '{name = "ring", size = 8192, location = #pto.address_space<vec>, auto = false, base = 0}'
    turns = "scf.for %i = %c0 to %c3 step %c1 {"
    cube = [
        allocated("a", left, 0, 16, 16), allocated("b", right, 0, 16, 64), allocated("c", acc, 0, 16, 64), turns,
        f"pto.tmatmul ins(%a, %b : {left}, {right}) outs(%c : {acc})",
        f"pto.tpush_to_aiv(%c : {acc}) {{split = 0}}", "}",
    ]  # fmt: skip
    vector_side = [
        f"%buf = pto.reserve_buffer {ring} -> i32",
        "pto.aiv_initialize_pipe {dir_mask = 1, slot_size = 4096}",
        "    (c2v_consumer_buf = %buf : i32, v2c_consumer_buf = %zero : i32)",
        allocated("y", ROW, 8192, 16, 64), turns, f"%x = pto.tpop_from_aic {{split = 0}} -> {ROW}",
        binary("tadd", "x", "x", "y"), "pto.tfree_from_aic {split = 0}", "}",
    ]  # fmt: skip
    return module(function("both_aic", "cube", cube), function("both_aiv", "vector", vector_side))


def test_two_functions_are_one_body_in_which_pushes_come_first() -> None:
    one = read(mixed())
    handed = [item for item in one.lowered.instructions if item.name in ("push", "pop")]
    assert [item.name for item in handed] == ["push", "pop"] * 3
    assert {(item.unit, item.pipe) for item in handed} == {("AIC", "FIXP"), ("AIV", "MTE2")}
    assert [item.attribute("tile") for item in handed] == [handed[1].result] * 6
    assert [(ring.direction, ring.slot, ring.slots) for ring in one.lowered.rings] == [("C2V", 4096, 2)]
    assert one.core == "MIX"
    assert ends(one) == {"Left": 512, "Right": 2048, "Acc": 4096, "Vec": 12288}
    assert timed(one) > 0


def test_products_have_their_sizes() -> None:
    one = read(mixed())
    product = next(item for item in one.lowered.instructions if isinstance(item, Instruction) and item.pipe == "M")
    assert product.flops == 2 * 16 * 16 * 64


# --- bad input


@pytest.mark.parametrize(
    ("text", "at", "what"),
    [
        ("module {\n}\n", "", "no func.func"),
        (doubled().rpartition("return")[0], "}", "a } is missing"),
        (doubled().replace("pto.tadd ins", "%% ins"), "%% ins", "no op that can be read"),
        (doubled().replace("outs(%y__tile", "outs(%nothing"), "outs(%nothing", "which is no tile"),
        (doubled().replace(f" : {ROW}\n", "\n", 1), "%x__tile = pto.alloc_tile", "without a tile's type"),
        (doubled().replace("rows=", "rows=many", 1), "rows=many", "without a tile's type"),
        (mixed().replace("size = ", "size = many", 1), "size = many", "no pto.reserve_buffer that can be read"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_with_its_line(text: str, at: str, what: str) -> None:
    with pytest.raises(BadInput, match=what) as found:
        read(text)
    lines = [number for number, line in enumerate(text.splitlines(), 1) if at and at in line]
    assert (str(found.value.path), found.value.line) == ("kernel.pto", lines[-1] if lines else None)


def test_half_of_a_mixed_kernel_says_that_the_other_is_not_there() -> None:
    shared = '%slots = pto.import_reserved_buffer {name = "slots", peer_func = @kernel_aiv} -> i32'
    one = read(module(function("kernel_aic", "cube", [shared])))
    assert [*one.assumed.values()] == ["kernel_aiv, which it shares a ring with, is not in the file"]
    both = function("kernel_aic", "cube", [shared]), function("kernel_aiv", "vector", [])
    assert read(module(*both)).assumed == {}
