"""Time grows as it must: with bytes at HBM's rate, with FLOP at the cube's, with tasks and blocks at the runtime's.

Whole programs, recorded, lowered and simulated; every expected slope is made of the device file's constants.
"""

from __future__ import annotations

import pytest

import npuscope.tile as pl
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.time.run import simulate
from tests.lower.kernels import program, tensor

CHIP = load("910b1")
TIMING = {name: constant.value * 1e9 for name, constant in CHIP.timing.items() if constant.unit == "s"}  # ns
HBM = CHIP.timing["hbm_rate"].value / 1e9  # bytes per ns
CUBES = int(CHIP.cores.cube.value)
ROWS, COLUMNS = 64, 256
ROUND = 3 * CUBES / 3 * TIMING["poll_core"]  # a thread reads a third of the cores one after the other


def reading(turns: int) -> Program:
    """Every vector core adds up so many tiles of 64 KiB that nobody has read before."""

    @pl.jit
    def add_up(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        for block in pl.spmd(2 * CUBES, name_hint="add_up"):
            first = block * ROWS * turns
            total = x[first : first + ROWS, :]
            for row in pl.pipeline(ROWS, ROWS * turns, ROWS, stage=2):
                total = pl.add(total, x[first + row : first + row + ROWS, :])
            y[block * ROWS : block * ROWS + ROWS, :] = total
        return y

    blocks = 2 * CUBES
    return program(add_up, tensor((blocks * ROWS * turns, COLUMNS), "FP32"), tensor((blocks * ROWS, COLUMNS), "FP32"))


def multiplying(turns: int) -> Program:
    """Every cube core multiplies the same two tiles, which are loaded once, so many times."""

    @pl.jit
    def multiply(a: pl.Tensor, b: pl.Tensor, c: pl.Out[pl.Tensor]):
        for block in pl.spmd(CUBES, name_hint="multiply"):
            left, right = a[:, :], b[:, :]
            total = pl.matmul(left, right)
            for _ in pl.range(turns - 1):
                total = pl.matmul_acc(total, left, right)
            c[block * 128 : block * 128 + 128, :] = total
        return c

    return program(multiply, tensor((128, 128), "BF16"), tensor((128, 256), "BF16"), tensor((CUBES * 128, 256), "FP32"))


def tiny_tasks(tasks: int) -> Program:
    @pl.jit
    def tiny(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        for i in pl.parallel(0, tasks):
            with pl.at(level=pl.Level.CORE_GROUP, name_hint="tiny"):
                y = pl.assemble(y, pl.add(pl.slice(x, [1, 64], [i, 0]), 1.0), [i, 0])
        return y

    return program(tiny, tensor((tasks, 64), "FP32"), tensor((tasks, 64), "FP32"))


def tiny_blocks(blocks: int) -> Program:
    @pl.jit
    def tiny(x: pl.Tensor, y: pl.Out[pl.Tensor]):
        for i in pl.spmd(blocks, name_hint="tiny"):
            y[i : i + 1, :] = pl.add(x[i : i + 1, :], 1.0)
        return y

    return program(tiny, tensor((blocks, 64), "FP32"), tensor((blocks, 64), "FP32"))


def grows(walls: dict[int, float], expected: dict[int, float]) -> None:
    """A wall is what is expected of its work, and the same fixed cost, in which an end may be seen a round late."""
    fixed = [walls[work] - expected[work] for work in walls]
    assert min(fixed) > 0
    assert max(fixed) - min(fixed) < ROUND
    # submitting, handing out to every core, the first pickup, first loads, last store, a round to see it: microseconds
    assert max(fixed) < 20_000
    assert min(expected.values()) > 10 * ROUND, "too short to tell"


def test_a_memory_bound_program_grows_by_its_bytes_at_the_rate_of_hbm() -> None:
    # GIVEN a program that wants five times what HBM gives, and reads 50, 100 and 150 MB (L2 has 201)
    bytes_ = {turns: 2 * CUBES * turns * ROWS * COLUMNS * 4 for turns in (16, 32, 48)}
    # THEN
    grows({turns: simulate(reading(turns)).wall for turns in bytes_}, {turns: n / HBM for turns, n in bytes_.items()})


def test_a_cube_bound_program_grows_by_its_flop_at_the_peak_of_the_cube() -> None:
    flop = {turns: CUBES * turns * 2 * 128 * 128 * 256 for turns in (64, 128, 512)}
    assert CHIP.clock is not None
    peak = CUBES * CHIP.cube["bf16"].value * CHIP.clock.core.value / 1e9  # FLOP per ns of the chip
    # K of 128 goes through L0 as two steps of 64: 2 x 21 cycles before 2 x 512 of work, 4.1 % above the peak's time
    head = 1 + 2 * CHIP.core["l0_head"].value / 1024
    walls = {turns: simulate(multiplying(turns)).wall for turns in flop}
    grows(walls, {turns: n / peak * head for turns, n in flop.items()})


def test_a_tiny_task_more_costs_the_orchestrator_s_time_for_it() -> None:
    # two arguments and no edge; three scheduler threads and 48 cores are faster than one orchestrator
    each = TIMING["submit_base"] + 2 * TIMING["submit_argument"]
    walls = [simulate(tiny_tasks(tasks)).wall for tasks in (128, 256, 512)]
    assert (walls[1] - walls[0]) / 128 == pytest.approx(each, rel=0.01)
    assert (walls[2] - walls[1]) / 256 == pytest.approx(each, rel=0.01)


def test_a_tiny_block_more_costs_a_scheduler_thread_s_time_for_it() -> None:
    # one task: nothing to submit. A block is polled once at least, seen done and replaced by one of three threads
    least = (TIMING["poll_core"] + TIMING["complete_block"] + TIMING["dispatch_block"]) / 3
    walls = [simulate(tiny_blocks(blocks)).wall for blocks in (256, 512, 1024)]
    slopes = [(walls[1] - walls[0]) / 256, (walls[2] - walls[1]) / 512]
    assert slopes[0] == pytest.approx(slopes[1], rel=0.03)
    assert least * 0.9 < slopes[1] < 1.2 * least
