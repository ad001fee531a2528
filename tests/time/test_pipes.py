"""One core: the compiled run and the same code as plain Python agree; a slower memory makes no block faster.

Also what scalar reads, barriers, lanes and atomic adds cost.
"""

from __future__ import annotations

import numpy as np
import pytest

import npuscope.tile as pl
from npuscope.base.errors import NpuscopeError
from npuscope.chip.devices import with_values
from npuscope.time.chip.prepare import prepare
from npuscope.time.core.pipes import time_block, time_ways, trace_block
from npuscope.time.core.stream import PLACE, stream_of
from npuscope.time.inside import inside
from npuscope.time.run import simulate
from tests.lower.kernels import lowered, tensor

K, N = 256, 128


@pl.jit
def mixed(x: pl.Tensor, w: pl.Tensor, out: pl.Out[pl.Tensor]):
    """A pipelined product whose operand comes from, and whose result goes to, a vector core."""
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="mixed"):
        acc = pl.matmul(pl.neg(x[:, 0:64]), w[0:64, :])
        for k in pl.pipeline(64, K, 64, stage=2):
            acc = pl.matmul_acc(acc, pl.neg(x[:, k : k + 64]), w[k : k + 64, :])
        out = pl.assemble(out, pl.exp(acc), [0, 0])
    return out


@pl.jit
def phased(x: pl.Tensor, out: pl.Out[pl.Tensor]):
    """Blocks that meet between a load and another."""
    for block in pl.spmd(2, name_hint="phased"):
        tile = pl.sqrt(x[0:16, :])
        pl.system.syncall(core_type="aiv_only")
        out = pl.assemble(out, pl.add(tile, x[0:16, :]), [block * 16, 0])
    return out


@pytest.mark.parametrize("slow", [1.0, 3.5])
def test_compiled_and_plain_agree(slow: float) -> None:
    program, found = lowered(mixed, tensor((16, K), "BF16"), tensor((K, N), "BF16"), tensor((16, N), "FP32"))
    stream = stream_of(found[0], program.device)
    compiled, plain = time_block(stream, slow), time_block(stream, slow, plain=True)
    assert compiled.duration == plain.duration > 0
    np.testing.assert_array_equal(compiled.busy, plain.busy)
    assert compiled.cube < compiled.vector  # the vector core stores what the cube hands it
    assert time_block(stream, slow * 2).duration > compiled.duration


def test_ways_that_are_timed_at_once_take_what_each_takes_alone() -> None:
    """To the last bit, and also where blocks meet at barriers."""
    args = tensor((16, K), "BF16"), tensor((K, N), "BF16"), tensor((16, N), "FP32")
    programs = [lowered(mixed, *args), lowered(phased, tensor((16, 64), "FP32"), tensor((32, 64), "FP32"))]
    for program, found in programs:
        stream = stream_of(found[0], program.device)
        ways = [(slow, share) for slow in (1.0, 1.5, 16.0) for share in (0.0, 1 / 3, 1.0)]
        together = time_ways(stream, np.array([slow for slow, _ in ways]), np.array([share for _, share in ways]))
        for (slow, share), timing in zip(ways, together, strict=True):
            alone = time_block(stream, slow, share=share)
            assert (timing.duration, timing.cube, timing.vector) == (alone.duration, alone.cube, alone.vector)
            np.testing.assert_array_equal(timing.busy, alone.busy)
            np.testing.assert_array_equal(timing.met, alone.met)
        assert len({timing.duration for timing in together}) > 3


def test_a_pipe_works_or_waits_and_never_both() -> None:
    program, _ = lowered(mixed, tensor((16, K), "BF16"), tensor((K, N), "BF16"), tensor((16, N), "FP32"))
    block = inside(simulate(program), "mixed")
    for row in block.pipes().iter_rows(named=True):
        assert row["busy_ns"] + row["waited_ns"] <= block.timing.duration + 1e-6, row
    assert block.waits()["waited_ns"].sum() == pytest.approx(block.pipes()["waited_ns"].sum())


@pl.jit
def gathered(x: pl.Tensor, q: pl.Tensor, y: pl.Out[pl.Tensor]):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="gathered"):
        rows = pl.create_l1([64, 128], pl.BF16)
        for r in pl.range(64):
            rows = pl.gather_row(rows, x, [r, 0], [63 - r, 0], [1, 128])
        y[:, :] = pl.matmul(q[:, :], rows, b_trans=True, out_dtype=pl.FP32)
    return y


def test_a_product_waits_for_the_rows_gathered_into_its_operand() -> None:
    """One load a row into one tile, each when the one before has arrived; the product begins after the last."""
    program, found = lowered(gathered, tensor((64, 128), "BF16"), tensor((16, 128), "BF16"), tensor((16, 64), "FP32"))
    [mat] = [space for space in found[0].plan if space.space == "Mat"]
    assert mat.used == (64 * 128 + 16 * 128) * 2  # no room for the rows by themselves
    _, trace = trace_block(stream_of(found[0], program.device))
    loads, products = (trace.pipe == PLACE["AIC", name] for name in ("MTE2", "M"))
    starts, ends = trace.start[loads], trace.end[loads]
    assert len(starts) == 65
    assert trace.start[products][0] > ends[63]
    arrives = program.device.timing["load_latency"].value * 1e9
    np.testing.assert_allclose(starts[1:64], ends[:63] + arrives)


@pl.jit
def cleared(out: pl.Out[pl.Tensor], other: pl.Out[pl.Tensor]):
    """Rows of one tensor, rows of two in turn."""
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="cleared"):
        zero = pl.full([1, 128], dtype=pl.FP32, value=0.0)
        for r in pl.range(32):
            out[r : r + 1, :] = zero
        for r in pl.range(32, 64):
            out[r : r + 1, :] = zero
            other[r : r + 1, :] = zero
    return out, other


def test_a_store_waits_for_the_store_before_it_to_the_same_tensor() -> None:
    """The compiler knows tensors, not rows: a barrier stands between stores to one, none between stores to two."""
    program, found = lowered(cleared, tensor((64, 128), "FP32"), tensor((64, 128), "FP32"))
    _, trace = trace_block(stream_of(found[0], program.device))
    stores = trace.pipe == PLACE["AIV", "MTE3"]
    starts, ends = trace.start[stores], trace.end[stores]
    arrives = program.device.timing["store_latency"].value * 1e9
    np.testing.assert_allclose(starts[1:32], ends[:31] + arrives)
    np.testing.assert_allclose(starts[34::2], np.maximum(ends[32:-2:2] + arrives, ends[33:-1:2]))
    plain = program.with_timing(with_values(program.device, {"timing.store_order": 0.0}))
    _, unordered = trace_block(stream_of(found[0], plain.device))
    np.testing.assert_allclose(unordered.start[stores][1:32], unordered.end[stores][:31])


def test_what_comes_out_of_l2_is_slower_where_hbm_is_short() -> None:
    """Twice the slow-down of HBM less one, times the crowding of L2: on the load's bytes and on its arrival."""
    program, found = lowered(phased, tensor((16, 64), "FP32"), tensor((32, 64), "FP32"))
    device = with_values(program.device, {"timing.l2_crowding": 1.5})
    stream = stream_of(found[0], device)
    (_, alone), (_, crowded) = (trace_block(stream, slow, share=0.0) for slow in (1.0, 3.0))
    load = int(np.flatnonzero(alone.pipe == PLACE["AIV", "MTE2"])[0])
    fixed, latency = (device.timing[name].value * 1e9 for name in ("load_fixed", "load_latency"))
    for trace, times in ((alone, 1.0), (crowded, 1 + 1.5 * 2)):
        assert trace.arrived[load] - trace.end[load] == pytest.approx(latency * times)
        moved = 16 * 64 * 4 / device.timing["load_vector_l2"].value * 1e9
        assert trace.end[load] - trace.start[load] == pytest.approx(fixed + moved * times)


def scalars(apart: int):
    """64 elements of 4 bytes that lie so far apart, one after the other."""

    @pl.jit
    def listed(lengths: pl.Tensor, out: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="listed"):
            for n in pl.range(64):
                pl.write(out, [n], pl.read(lengths, [n * apart]))
        return out

    program, _ = lowered(listed, tensor((64 * apart,), "INT32"), tensor((64,), "INT32"))
    prepared = prepare(program)
    return float(prepared.job.run[0, 0]), program.device.timing


def test_a_scalar_read_waits_once_per_line() -> None:
    # 64 elements are 4 lines of 64 bytes, or at every second element 8; the loop and its accesses take as long.
    dense, timing = scalars(1)
    every_second, _ = scalars(2)
    line = timing["scalar_read"].value * 1e9
    assert every_second - dense == pytest.approx(4 * line)
    # And not much else: two accesses and a turn for each of 64.
    cycles = (timing["scalar_access"].value * 2 + timing["scalar_turn"].value) * 64 / 1.85
    assert dense == pytest.approx(4 * line + cycles + timing["block_start"].value * 1e9, rel=0.05)


def meeting(first: int, second: int, barriers: bool = True):
    """Two blocks: one has `first` and then 1 square root to draw, the other 1 and then `second`."""

    @pl.jit
    def phases(x: pl.Tensor, out: pl.Out[pl.Tensor]):
        for block in pl.spmd(2, name_hint="phases"):
            tile = x[0:16, :]
            for _ in pl.range(first if block == 0 else 1):
                tile = pl.sqrt(tile)
            if barriers:
                pl.system.syncall(core_type="aiv_only")
            for _ in pl.range(1 if block == 0 else second):
                tile = pl.sqrt(tile)
            out = pl.assemble(out, tile, [block * 16, 0])
        return out

    program, _ = lowered(phases, tensor((16, 64), "FP32"), tensor((32, 64), "FP32"))
    job = prepare(program).job
    return [float(job.run[kind, 0]) for kind in job.block_class], program.device


def test_a_phase_ends_with_the_slowest_block_of_its_launch() -> None:
    runs, device = meeting(21, 31)
    both, _ = meeting(21, 1)
    alone, _ = meeting(1, 1)
    # Draws in a row depend on one another. A square root of 16 rows of 64 fp32, 16 repeats, takes 14 + 32 + 25 cycles.
    draw = (14 + 2 * 16 + 25) / 1.85
    assert runs[0] + 30 * draw == pytest.approx(runs[1], rel=1e-3)  # it has nobody to wait for after the barrier
    # (Only the first block to load x finds it in HBM and not in L2, which takes some nanoseconds.)
    assert both[0] - alone[0] == pytest.approx(20 * draw, abs=10)
    assert runs[1] - alone[1] == pytest.approx(50 * draw, abs=10)  # 20 waited for, 30 of its own
    free, _ = meeting(1, 1, barriers=False)
    assert alone[0] - free[0] >= device.timing["barrier"].value / 1.85


@pl.jit
def summed(x: pl.Tensor, out: pl.InOut[pl.Tensor], adds: bool):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="summed"):
        how = pl.AtomicType.Add if adds else pl.AtomicType.None_
        out = pl.assemble(out, pl.exp(x[:, :]), [0, 0], atomic=how)
    return out


def test_an_atomic_add_reads_what_it_adds_to() -> None:
    read = {}
    for adds in (False, True):
        program, found = lowered(summed, tensor((16, 128), "FP32"), tensor((16, 128), "FP32"), adds)
        read[adds] = stream_of(found[0], program.device).read
    assert read[False] == 16 * 128 * 4
    assert read[True] == 2 * 16 * 128 * 4


@pl.jit
def by_lanes(x: pl.Tensor, out: pl.Out[pl.Tensor], lanes: bool):
    with pl.at(level=pl.Level.CORE_GROUP, name_hint="halves"):
        if lanes:
            for lane in pl.split_aiv(2, mode=pl.SplitMode.NONE):
                out = pl.assemble(out, pl.exp(x[lane * 16 : lane * 16 + 16, :]), [lane * 16, 0])
        else:
            out = pl.assemble(out, pl.exp(x[0:16, :]), [0, 0])
    return out


def test_the_two_lanes_of_a_core_group_run_at_the_same_time() -> None:
    took = {}
    for lanes in (False, True):
        program, found = lowered(by_lanes, tensor((32, 128), "FP32"), tensor((32, 128), "FP32"), lanes)
        stream = stream_of(found[0], program.device)
        took[lanes] = time_block(stream).duration
        assert stream.read == (2 if lanes else 1) * 16 * 128 * 4
    assert took[True] == pytest.approx(took[False], abs=40)  # one turn of the loop is issued


def test_what_the_chip_has_no_way_for_is_refused_not_timed() -> None:
    """`check` finds it first; who silences it, or calls the simulator from Python, is told as well."""

    @pl.jit
    def through_mat(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        with pl.at(level=pl.Level.CORE_GROUP, name_hint="copy"):
            tile = pl.move(pl.load(x, [0, 0], [64, 64]), target_memory=pl.MemorySpace.Mat)
            y = pl.store(tile, [0, 0], y)
        return y

    program, _ = lowered(through_mat, tensor((64, 64), "FP32"), tensor((64, 64), "FP32"))
    with pytest.raises(NpuscopeError, match="copy cannot be timed: store would need a pipe MTE3 on the AIC"):
        prepare(program)
