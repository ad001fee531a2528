"""Turns in flight: how many buffers they get, in which order they load and store, what gives way when it is full."""

from __future__ import annotations

from typing import Any

import npuscope.tile as pl
from npuscope.check.run import unfit
from npuscope.lower.memory_plan import plan_memory
from npuscope.lower.model import Instruction, Items, Lowered, Repeat, instructions
from npuscope.lower.program import PlannedBody
from tests.lower.kernels import lowered, usage, used
from tests.lower.memory_model import Memory

CORE = pl.Level.CORE_GROUP
T: Any = pl.Tensor


def buffers(kernel: PlannedBody, space: str, name: str) -> int:
    """How many different buffers a tile has."""
    found = next(one for one in kernel.plan if one.space == space)
    return sum(any(tenant.value.name == name for tenant in slot.tenants) for slot in found.slots)


def run(found: tuple[PlannedBody, ...]) -> None:
    for kernel in found:
        Memory(kernel.lowered, kernel.plan).run()


def rows(width: int, stage: int, turns: int) -> Any:
    @pl.jit
    def main(x: T[[8, turns * width], pl.FP32], out: pl.Out[T[[8, turns * width], pl.FP32]]):
        with pl.at(level=CORE, name_hint="rows"):
            for i in pl.pipeline(turns, stage=stage):
                tile = x[:, i * width : (i + 1) * width]
                doubled = pl.add(tile, tile)
                out = pl.assemble(out, pl.add(doubled, tile), [0, i * width])
        return out

    return main


def test_each_turn_in_flight_has_its_own_buffers() -> None:
    _, found = lowered(rows(512, 3, 6))
    assert buffers(found[0], "Vec", "x") == 3
    assert used(found)["rows", "Vec"] == 3 * 2 * 8 * 512 * 4  # the tile and its double; their sum takes one's place
    run(found)


def test_fewer_turns_than_stages_need_fewer_buffers() -> None:
    _, found = lowered(rows(512, 4, 2))
    assert buffers(found[0], "Vec", "x") == 2


def test_depth_is_given_up_before_anything_is_said_not_to_fit() -> None:
    # GIVEN tiles of 40 KiB, three turns in flight: 6 of them do not fit into 184 KiB
    _, found = lowered(rows(1280, 3, 6))
    space = usage(found, "rows", "Vec").space
    # THEN the loads keep three buffers, for all turns load first, and what is made of them does with less
    assert space.fits
    assert buffers(found[0], "Vec", "x") == 3
    assert {one.value.name for one in space.shallow} == {"doubled", "out"}
    run(found)


def test_loads_of_turns_in_flight_that_do_not_fit_are_an_error() -> None:
    _, found = lowered(rows(2048, 3, 6))
    assert not usage(found, "rows", "Vec").space.fits  # 3 · 64 KiB of loads alone are more than 184 KiB
    run(found)


@pl.jit
def nested(x: T[[8, 7168], pl.FP32], w: T[[32, 7168], pl.FP32], out: pl.Out[T[[8, 7168], pl.FP32]]):
    with pl.at(level=CORE, name_hint="mix"):
        for t in pl.pipeline(8, stage=2):
            row = pl.mul(x[t : t + 1, :], 2.0)
            for i in pl.pipeline(4, stage=4):
                row = pl.add(row, pl.mul(w[4 * t + i : 4 * t + i + 1, :], 3.0))
            out = pl.assemble(out, row, [t, 0])
    return out


def test_an_outer_loop_gives_way_for_the_loads_of_an_inner_one() -> None:
    # GIVEN rows of 28 KiB (as in a public kernel that compiles): 2 · 4 of them are 224 KiB
    _, found = lowered(nested)
    # THEN the inner loop's four turns load side by side, those of the next outer turn after them: four of w, the sum
    # (in the place of x), and x of the next outer turn
    assert used(found)["mix", "Vec"] == 6 * 7168 * 4
    run(found)


@pl.jit
def products(x: T[[16, 128], pl.BF16], w: T[[128, 1024], pl.BF16], out: pl.Out[T[[16, 1024], pl.FP32]]):
    with pl.at(level=CORE, name_hint="products"):
        for n in pl.pipeline(8, stage=2):
            out = pl.assemble(out, pl.matmul(x[:, :], w[:, n * 128 : (n + 1) * 128], out_dtype=pl.FP32), [0, n * 128])
    return out


def test_every_turn_in_flight_has_a_sum_of_its_own() -> None:
    _, found = lowered(products)
    assert (
        used(found)["products", "Acc"] == 2 * 16 * 128 * 4
    )  # as many as the loop has stages (row pl741 of the changes)
    assert buffers(found[0], "Mat", "w") == 2


@pl.jit
def attention(x: T[[16, 128], pl.BF16], kv: T[[512, 256], pl.BF16], out: pl.Out[T[[16, 128], pl.FP32]]):
    with pl.at(level=CORE, name_hint="attention"):
        q = x[:, :]
        total = pl.full([16, 128], dtype=pl.FP32, value=0.0)
        for j in pl.pipeline(8, stage=2):
            scores = pl.matmul(q, kv[j * 64 : j * 64 + 64, 0:128], b_trans=True, out_dtype=pl.FP32)
            weights = pl.cast(pl.exp(scores), target_type=pl.BF16)
            part = pl.matmul(weights, kv[j * 64 : j * 64 + 64, 128:256], out_dtype=pl.FP32)
            total = pl.add(total, part)
        out = pl.assemble(out, total, [0, 0])
    return out


def test_turns_that_cross_the_cores_both_ways_are_not_doubled_on_the_vector_cores() -> None:
    # GIVEN scores to the vector cores and weights back in every turn
    program, found = lowered(attention)
    assert unfit(program) == ()
    # THEN the vector cores take turn by turn: exp and cast of [16, 64] and the total, beside a ring of two slots of
    # [16, 128] FP32; the cast takes the place of what it casts
    assert used(found)["attention_aiv", "Vec"] == 2 * 8192 + 8192 + 16 * 64 * 4
    assert all(not tenant.turns for space in found[0].plan if space.space == "Vec"
               for slot in space.slots for tenant in slot.tenants)  # fmt: skip
    run(found)


# --- order


def test_a_store_of_the_old_value_stays_before_what_overwrites_it() -> None:
    # GIVEN a loop that stores the tile it found, then loads the next one into the same name
    @pl.jit
    def main(x: T[[8, 512], pl.FP32], out: pl.Out[T[[8, 512], pl.FP32]]):
        with pl.at(level=CORE, name_hint="shift"):
            tile = x[:, 0:64]
            for i in pl.pipeline(1, 8, stage=2):
                out = pl.assemble(out, tile, [0, (i - 1) * 64])
                tile = x[:, i * 64 : (i + 1) * 64]
        return out

    run(lowered(main)[1])


def test_a_load_of_what_the_turn_stored_stays_after_the_store() -> None:
    @pl.jit
    def main(x: T[[8, 512], pl.FP32], out: pl.InOut[T[[8, 512], pl.FP32]]):
        with pl.at(level=CORE, name_hint="again"):
            for i in pl.pipeline(8, stage=2):
                out = pl.assemble(out, x[:, i * 64 : (i + 1) * 64], [0, i * 64])
                back = out[:, i * 64 : (i + 1) * 64]
                out = pl.assemble(out, pl.add(back, back), [0, i * 64])
        return out

    _, found = lowered(main)
    (loop,) = (item for item in found[0].lowered.items if isinstance(item, Repeat))
    planes = [item.plane for item in loop.items if isinstance(item, Instruction)]
    assert planes == ["load", "store", "load", "vector", "store"]


# --- tiles that a loop writes over


def copies(items: Items) -> int:
    return sum(
        copies(item.items) if isinstance(item, Repeat) else item.name == "copy" for item in items
    )  # fmt: skip


def test_a_tile_that_is_still_needed_is_copied_before_the_loop() -> None:
    @pl.jit
    def main(x: T[[8, 64], pl.FP32], out: pl.Out[T[[16, 64], pl.FP32]]):
        with pl.at(level=CORE, name_hint="kept"):
            first = x[:, :]
            sums = first
            for _i, (carried,) in pl.range(4, init_values=(sums,)):
                sums = pl.yield_(pl.add(carried, first))
            out = pl.assemble(out, sums, [0, 0])
            out = pl.assemble(out, first, [8, 0])
        return out

    _, found = lowered(main)
    run(found)
    assert used(found)["kept", "Vec"] == 2 * 8 * 64 * 4  # the first and the sum


def test_an_empty_body_and_one_of_scalars_take_nothing() -> None:
    @pl.jit
    def main(x: T[[8, 64], pl.INT32], out: pl.InOut[T[[8, 64], pl.INT32]]):
        with pl.at(level=CORE, name_hint="nothing"):
            pass
        with pl.at(level=CORE, name_hint="scalars"):
            for i in pl.range(4):
                pl.write(out, [0, i], pl.read(x, [0, i]) + 1)
        return out

    _, found = lowered(main)
    assert used(found) == {}
    empty = Lowered("nothing", 0, (), ())
    from npuscope.chip.devices import load

    assert plan_memory(empty, load("910b1")) == ()


def test_a_tile_that_the_first_turn_loads_for_all_turns_is_kept() -> None:
    # GIVEN a tensor used whole, which the first turn loads and all later ones read
    @pl.jit
    def main(x: T[[4, 16], pl.FP32], small: T[[4, 16], pl.FP32], out: pl.InOut[T[[4, 16], pl.FP32]]):
        with pl.at(level=CORE, name_hint="whole"):
            total = x[:, :]
            out = pl.assemble(out, total, [0, 0])
            for i in pl.range(5):
                if i == 0:
                    kept = out[:, :]
                total = pl.add(total, kept)
            out = pl.assemble(out, total, [0, 0])
        return out

    _, found = lowered(main)
    run(found)
    adds = [one for one in instructions(found[0].lowered.items) if one.name == "add"]
    loads = [one.result for one in instructions(found[0].lowered.items) if one.plane == "load"]
    assert all(one.operands[1] == loads[-1] for one in adds)
    assert used(found)["whole", "Vec"] == 2 * 4 * 16 * 4
