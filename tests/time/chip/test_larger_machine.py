"""More clusters or bandwidth: faster on the whole, and where not, because the scheduler chose otherwise.

The scheduler hands out what is ready first come, first served, and binds a block to a core while another still runs
there. As Graham showed of such rules, more cores can then make a fixed graph later. A slow-down counts as real where

1. both runs keep every rule of the chip (rules.py), and the engine's twin has the same times, and
2. it is gone if the larger machine makes the smaller one's choices (which block runs where, in what order): replay.py.

Where no choice can go wrong nothing is slower but by the scheduler's grain: a thread reads every core it has, so that
its round gets longer with the clusters. A chain loses up to two rounds per task, and nothing if reading takes no time;
equal blocks, while the memory is not short, lose two turns of a thread: one to hand out, one to see them done.
"""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from tiers import examples

import npuscope.tile as pl
from npuscope.chip.devices import load
from npuscope.lower.program import Program
from npuscope.time.chip.engine import run_chip
from npuscope.time.chip.job import AIC, AIV, MIX, Job, Machine
from npuscope.time.run import simulate
from tests.lower.kernels import program, tensor
from tests.time.jobs import chain, fork_and_join, graph, job, machine
from tests.time.plain_chip import Chip
from tests.time.rules import NEAR, check, end_with_the_same_choices

SEEDS, SHAPES = st.integers(0, 10**6), st.sampled_from([MIX, AIC, AIV])
MORE = st.sampled_from([("clusters", 1), ("clusters", 5), ("limit", 1.1), ("limit", 2.0), ("limit", 1000.0)])
US = 1000.0


def last(made: Job, chip: Machine) -> float:
    """When the last block is seen done."""
    return float(np.max(run_chip(made, chip)[0].finish))


def larger(chip: Machine, what: str, by: float) -> Machine:
    if what == "clusters":
        return chip._replace(clusters=chip.clusters + int(by))
    return chip._replace(limit=chip.limit * by)


def random_job(seed: int, tasks: int) -> Job:
    made = job(Random(seed), tasks)
    return made._replace(waits_host=np.full(tasks, -1))  # a replay takes the times of submission as they were


@given(SEEDS, st.integers(2, 30), st.integers(1, 4), st.sampled_from([10.0, 50.0]), MORE)
@examples(400)
def test_a_larger_machine_is_slower_only_by_its_choices(
    seed: int, tasks: int, clusters: int, limit: float, more: tuple[str, float]
) -> None:
    made, small = random_job(seed, tasks), machine(clusters, limit=limit)
    large = larger(small, *more)
    if len(made.task_of) == 0 or last(made, large) <= last(made, small) + NEAR:
        return
    event(f"slower with more {more[0]}")
    for chip in (small, large):
        times, _ = run_chip(made, chip)
        check(made, chip, times)
        twin = Chip(made, chip)
        twin.run()
        np.testing.assert_allclose(times.finish, twin.times.finish, atol=0.5)
    times, _ = run_chip(made, small)
    assert end_with_the_same_choices(made, small, times, large.limit) <= last(made, small) + 10 * NEAR


@given(SEEDS, st.integers(1, 25))
def test_the_replay_is_the_run_where_nothing_changes(seed: int, tasks: int) -> None:
    made, chip = random_job(seed, tasks), machine(2, limit=20.0)
    if len(made.task_of):
        times, _ = run_chip(made, chip)
        assert end_with_the_same_choices(made, chip, times, chip.limit) == pytest.approx(np.max(times.finish), abs=0.01)


@pytest.mark.parametrize("more", [("clusters", 2), ("limit", 2.0)])
def test_on_the_whole_a_larger_machine_is_faster(more: tuple[str, float]) -> None:
    # GIVEN 400 graphs that two clusters and 20 bytes per nanosecond are little for
    ratios = []
    for seed in range(400):
        made, small = random_job(seed, 20), machine(2, limit=20.0)
        ratios.append(last(made, larger(small, *more)) / last(made, small))
    # THEN twice as much helps most and hardly more than doubles the speed; it harms few of them, and by little
    slower = np.array(ratios) > 1.01
    assert np.median(ratios) < 0.95
    assert min(ratios) > 0.45
    assert np.mean(slower) < 0.1
    assert max(ratios) < 1.3


def round_of(chip: Machine) -> float:
    """How long a thread takes to read each of its cores once."""
    return 3 * -(-chip.clusters // chip.threads) * chip.poll


@given(SHAPES, st.integers(1, 20), st.floats(500, 30_000), st.floats(0, 30), st.integers(1, 5), MORE, st.booleans())
@examples(200)
def test_a_chain_is_slower_by_rounds_of_reading_alone(
    shape: int, tasks: int, length: float, draw: float, clusters: int, more: tuple[str, float], reads: bool
) -> None:
    made, small = chain(tasks, length, shape=shape, bytes=draw * length), machine(clusters, limit=10.0)
    small = small if reads else small._replace(poll=0.0)
    large = larger(small, *more)
    lost = 2 * tasks * round_of(large) if more[0] == "clusters" else 0.0
    assert last(made, large) <= last(made, small) + lost


def two_turns(chip: Machine, shape: int) -> float:
    """What a thread needs for one block on each of its cores of a kind, twice."""
    cores = -(-chip.clusters // chip.threads) * (2 if shape == AIV else 1)
    return 2 * (round_of(chip) + cores * (chip.complete + chip.dispatch))


@given(SHAPES, st.integers(1, 40), st.floats(500, 30_000), st.integers(1, 7), st.integers(1, 6), st.booleans())
@examples(200)
def test_equal_blocks_are_slower_by_two_turns_of_a_thread_at_most(
    shape: int, count: int, length: float, clusters: int, added: int, launch: bool
) -> None:
    made = graph([length], shape=shape, blocks=count) if launch else fork_and_join(count, length, shape=shape)
    chip = machine(clusters + added)
    assert last(made, chip) <= last(made, machine(clusters)) + two_turns(chip, shape)


@given(SHAPES, st.integers(1, 40), st.floats(500, 30_000), st.floats(5, 30), st.booleans(), st.floats(1.01, 100))
@examples(200)
def test_equal_blocks_gain_by_bandwidth(
    shape: int, count: int, length: float, draw: float, launch: bool, factor: float
) -> None:
    kind: dict[str, Any] = {"shape": shape, "bytes": draw * length}
    made = graph([length], blocks=count, **kind) if launch else fork_and_join(count, length, **kind)
    chip = machine(3, limit=20.0)
    assert last(made, larger(chip, "limit", factor)) <= last(made, chip) + two_turns(chip, shape)


def test_more_clusters_and_a_later_end_shown_by_hand() -> None:
    # GIVEN four tasks of the cube that wait for nobody: A and B take 100 µs, C and D 200 µs
    made = graph([100 * US, 100 * US, 200 * US, 200 * US])
    # WHEN they run on two clusters and on three
    two, three = (run_chip(made, machine(clusters))[0] for clusters in (2, 3))
    # THEN on two, C is put behind B and D behind A, and all is done after 300 µs; on three, C has a core of its own, D
    # is put behind C, for nobody knows how long C will run, and all is done after 400 µs. Submitting and handing out
    # take microseconds:
    #
    #     2 clusters   cube 0  A D D        3 clusters   cube 0  A
    #                  cube 1  B C C                     cube 1  B
    #                                                    cube 2  C C D D
    assert two.core.tolist() == [0, 1, 1, 0]
    assert three.core.tolist() == [0, 1, 2, 2]
    # To the nanosecond: a task is submitted every 0.5 µs; a turn reads no core that runs nothing and hands out in
    # 0.07 + 0.3. A starts at 0.5 + 0.37 + 2.45, its core's first pickup; what waits behind a block starts 0.28 after
    # its end.
    assert two.start.tolist() == [3_320, 3_820, 103_820 + 280, 103_320 + 280]
    assert three.start.tolist() == [3_320, 3_820, 4_320, 204_320 + 280]
    assert np.max(two.end) == 304_100
    assert np.max(three.end) == 404_600
    # and the third cluster would have cost nothing had D been put behind A
    chip = machine(2)
    assert end_with_the_same_choices(made, chip, two, chip.limit) == pytest.approx(np.max(two.finish))


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
    assert max(fixed) < 25_000
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
    assert slopes[0] == pytest.approx(slopes[1], rel=0.06)
    assert least * 0.9 < slopes[1] < 1.2 * least
