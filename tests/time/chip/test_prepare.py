"""Which lines of GM a block reads: a line is fetched from HBM once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from other_chips import CHIP, LAYER, other, program_on

import npuscope.tile as pl
from npuscope.chip.runtimes import with_runtime
from npuscope.lower.program import Program
from npuscope.tile.record.model import Access
from npuscope.time.chip.prepare import Prepared, distinct_lines, prepare, retimed
from npuscope.time.core.stream import FAR, NEAR, PLACE, RUN, InstructionStream, KnownReads, stream_of
from npuscope.time.run import simulate
from tests.lower.kernels import lowered, tensor


def box(rows: int, columns: int, stride: int) -> Access:
    return Access(0, "read", (rows, columns), (stride, 1))


def test_narrow_columns_beside_one_another_share_their_lines() -> None:
    # 64 columns of bf16 are 128 B of a 512-B line: four column blocks read the same 16 lines
    boxes = [(box(16, 64, 4096), np.array([0, 64, 128, 192]))]
    assert distinct_lines(boxes, 2, 512) == 16
    assert distinct_lines([(box(16, 64, 4096), np.array([0]))], 2, 512) == 16


def test_a_tile_read_again_in_every_turn_counts_once() -> None:
    once = distinct_lines([(box(128, 256, 6144), np.array([0]))], 2, 512)
    assert once == 128  # 256 fp16 are one line
    assert distinct_lines([(box(128, 256, 6144), np.zeros(12, np.int64))], 2, 512) == once


def test_rows_without_gaps_are_one_span() -> None:
    # 16 rows of 32 bf16 without gaps are 1024 B from 256 B on: three lines
    assert distinct_lines([(box(16, 32, 32), np.array([128]))], 2, 512) == 3


def test_two_boxes_that_overlap_are_counted_together() -> None:
    boxes = [(box(4, 256, 1024), np.array([0])), (box(4, 256, 1024), np.array([1024]))]
    assert distinct_lines(boxes, 2, 512) == 5


CONSTANTS = [name for name, constant in CHIP.timing.items() if constant.unit != "flag"]


@pytest.mark.parametrize("name", CONSTANTS)
def test_a_changed_constant_has_the_effect_it_has_from_the_beginning(name: str) -> None:
    device = other(**{name: 1.4})
    anew, again = prepare(program_on(device, LAYER, "--small")), retimed(known(), device)
    assert again.machine == anew.machine
    there: Any
    here: Any
    for field, there, here in zip(anew.job._fields, anew.job, again.job, strict=True):
        pairs: Any = zip(there, here, strict=True) if field in ("rings", "stops") else [(there, here)]
        assert all(np.array_equal(a, b) for a, b in pairs), field
    assert again.program.device is device
    assert np.array_equal(again.classes.parts(), anew.classes.parts())


def known() -> Prepared:
    return prepare(program_on(CHIP, LAYER, "--small"))


NS = 1e9


def product(width: int, stride: int):
    """16 x 64 times 64 x `width` weights whose rows lie `stride` elements of two bytes apart."""

    @pl.jit
    def one(x: pl.Tensor, w: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="one"):
            out[:, :] = pl.matmul(x[:, :], w[:, 0:width], out_dtype=pl.FP32)
        return out

    return lowered(one, tensor((16, 64), "BF16"), tensor((64, stride), "BF16"), tensor((16, width), "FP32"))


def loads(stream: InstructionStream, unit: str) -> list[tuple[float, float]]:
    """Out of L2 and out of HBM, in ns."""
    rows = (stream.code[:, 0] == RUN) & (stream.code[:, 1] == PLACE[unit, "MTE2"])
    return [(float(cost[NEAR]), float(cost[FAR])) for cost in stream.costs[rows]]


def weights(width: int, stride: int) -> tuple[tuple[float, float], dict[str, float]]:
    program, found = product(width, stride)
    return loads(stream_of(found[0], program.device), "AIC")[1], {k: c.value for k, c in program.device.timing.items()}


def test_wide_rows_cost_their_bytes_and_narrow_ones_their_number() -> None:
    # 64 rows of 2,048 bytes, and of 64 bytes, 10,240 bytes apart: no power of two
    wide, timing = weights(1024, 5120)
    assert wide[0] == pytest.approx(64 * 2048 / timing["load_cube_l2"] * NS)
    assert wide[1] == pytest.approx(64 * 2048 / timing["load_cube_hbm"] * NS)
    narrow, _ = weights(32, 5120)
    assert narrow[0] == pytest.approx(64 * timing["load_cube_row_l2"] * NS)
    assert narrow[1] == pytest.approx(64 * timing["load_cube_row_hbm"] * NS)


def test_short_rows_a_multiple_of_16_kib_apart_hold_one_another_up() -> None:
    apart, timing = weights(128, 5120)  # 256 bytes, 10 KiB apart
    clashing, _ = weights(128, 8192)  # 16 KiB apart
    assert clashing[1] - apart[1] == pytest.approx(64 * timing["load_clash"] * NS)
    # a row of half the bytes holds the others up for half as long
    short, _ = weights(64, 8192)
    assert clashing[1] - short[1] == pytest.approx(32 * timing["load_clash"] * NS)


def test_short_rows_of_what_the_run_has_made_clash_where_they_lie_8_kib_apart() -> None:
    # GIVEN a product whose weights lie 8 KiB apart: inputs that nobody clashes for, or what a task has made
    program, found = product(128, 4096)
    timing = {name: constant.value for name, constant in program.device.timing.items()}
    given, made = (
        loads(stream_of(found[0], program.device, KnownReads(made=frozenset(which))), "AIC")[1] for which in ((), (1,))
    )
    assert made[0] - given[0] == pytest.approx(64 * timing["load_shared"] * NS)

    # WHEN a program multiplies both
    @pl.jit
    def twice(x: pl.Tensor, w: pl.Tensor, made: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="copy"):
            made[:, 0:128] = w[:, 0:128]
        for n in pl.range(2):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="one"):
                out[n * 16 : n * 16 + 16, :] = pl.matmul(x[:, :], w[:, 0:128], out_dtype=pl.FP32)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="other"):
                out[n * 16 : n * 16 + 16, :] = pl.matmul(x[:, :], made[:, 0:128], out_dtype=pl.FP32)
        return out

    sizes = (
        tensor((16, 64), "BF16"),
        tensor((64, 4096), "BF16"),
        tensor((64, 4096), "BF16"),
        tensor((32, 128), "FP32"),
    )
    ready = prepare(lowered(twice, *sizes)[0])
    # THEN what the run has made takes longer, both times
    run = ready.job.run[ready.job.block_class, 0]
    assert run[2] > run[1] + 60 * timing["load_shared"] * NS
    assert run[4] > run[3] + 60 * timing["load_shared"] * NS


def test_a_tensor_that_was_assembled_of_what_tasks_made_was_made_by_the_run() -> None:
    # GIVEN weights whose rows lie 8 KiB apart, given or put together of two parts that tasks write
    @pl.jit
    def both(x: pl.Tensor, w: pl.Tensor, out: pl.Out[pl.Tensor]):
        whole = pl.create_tensor([64, 4096], dtype=pl.BF16)
        for n in pl.range(2):
            part = pl.create_tensor([32, 4096], dtype=pl.BF16)
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="copy"):
                part[:, 0:128] = w[n * 32 : n * 32 + 32, 0:128]
            whole = pl.assemble(whole, part, [n * 32, 0])
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="given"):
            out[0:16, :] = pl.matmul(x[:, :], w[:, 0:128], out_dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="made"):
            out[16:32, :] = pl.matmul(x[:, :], whole[:, 0:128], out_dtype=pl.FP32)
        return out

    program, _ = lowered(both, tensor((16, 64), "BF16"), tensor((64, 4096), "BF16"), tensor((32, 128), "FP32"))
    ready = prepare(program)
    given, made = (ready.kind_of(int(number)) for number in ready.job.block_class[-2:])
    # THEN its rows clash, and none of it comes from HBM but the other operand
    run = ready.job.run[ready.job.block_class, 0]
    assert run[-1] > run[-2] + 60 * program.device.timing["load_shared"].value * NS
    assert made[1] <= given[1]


def test_whole_lines_a_multiple_of_16_kib_apart_take_more_of_hbm() -> None:
    drawn = {}
    for stride in (5120, 8192):
        program, found = product(256, stride)
        stream = stream_of(found[0], program.device)
        drawn[stride] = stream.drawn / stream.read
    # 64 rows of 512 bytes clash; the 16 of 128 bytes of the other operand do not
    weight = 64 * 512 / (64 * 512 + 16 * 128)
    assert drawn[5120] == 1
    assert drawn[8192] == pytest.approx(1 + weight * (program.device.timing["clash_whole"].value - 1))


def copied(stage: int):
    @pl.jit
    def copy(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="copy"):
            for n in pl.pipeline(32, stage=stage):
                out[n : n + 1, :] = x[n : n + 1, :]
        return out

    program, _ = lowered(copy, tensor((32, 512), "FP32"), tensor((32, 512), "FP32"))
    return prepare(program)


def test_a_tile_is_loaded_anew_when_what_was_stored_of_it_has_arrived() -> None:
    # GIVEN one tile that goes round: load, store, load ...
    prepared = copied(1)
    timing = {name: one.value * NS for name, one in prepared.program.device.timing.items()}
    # THEN a turn is a load, its latency, a store and its latency
    rate = prepared.program.device.timing["store_rate"].value
    store = timing["store_fixed"] + timing["store_row"] + 2048 / rate * NS
    (near, far), *_ = loads(prepared.classes.streams[0], "AIV")
    turn = timing["load_fixed"] + max(near, far) + timing["load_latency"] + store + timing["store_latency"]
    run = float(prepared.job.run[0, 0]) - timing["block_start"]
    assert run == pytest.approx(32 * turn, rel=0.05)
    # AND more tiles in flight make it faster
    assert float(copied(4).job.run[0, 0]) < 0.8 * float(prepared.job.run[0, 0])


def test_blocks_of_a_launch_that_read_the_same_share_what_is_not_in_l2() -> None:
    @pl.jit
    def read(w: pl.Tensor, out: pl.Out[pl.Tensor]):
        for block in pl.spmd(8, name_hint="read"):
            out[block : block + 1, :] = pl.col_sum(w[0:64, 0:256])
        return out

    program, _ = lowered(read, tensor((65536, 256), "FP32"), tensor((8, 256), "FP32"))
    run = simulate(program)
    # 64 KiB are read by all eight blocks: an eighth of them each brings from HBM, and all take as long
    shares = {share for _, share in run.prepared.classes.entries}
    assert len(shares) == 1
    assert 0 < shares.pop() <= 64 / 8
    assert len(np.unique(run.prepared.job.block_class)) == 1


def test_who_reads_what_a_task_wrote_keeps_the_tensor_and_under_tmr_not_the_task() -> None:
    # GIVEN a task that writes a tensor and one that reads it: three entries of the rings with the allocation
    @pl.jit
    def two(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        y = pl.create_tensor([16, 64], dtype=pl.FP32)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="write"):
            y[:, :] = pl.mul(x[:, :], 2.0)
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="read"):
            out[:, :] = pl.mul(y[:, :], 2.0)
        return out

    x = np.zeros((16, 64), np.float32)
    recording = two.record(x, np.zeros_like(x)).recording
    # WHEN it is submitted by the builds of spring and by those of August, whose tensor map only orders
    kept = []
    for device in (CHIP, with_runtime(CHIP, "tmr")):
        rings = prepare(Program(recording, device)).job.rings
        kept.append([rings.use[a:b].tolist() for a, b in pairwise(rings.first_use.tolist())])
    # THEN the reader keeps the allocation in both
    assert kept == [[[0], [0, 1]], [[0], [0]]]
